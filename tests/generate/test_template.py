"""Chat templates: what honest ones need, and what hostile ones are kept from."""

import datetime
import time

import pytest

from poolhouse_node.generate import template_sandbox
from poolhouse_node.generate.template import ChatTemplate, TemplateError
from poolhouse_node.weights.gguf import open_gguf
from tests.support.model import needs_model, smollm2_path
from tests.support.vectors import vectors

USER = {"role": "user", "content": "Hi"}
CHAT = [USER, {"role": "assistant", "content": "Hello"}, {"role": "user", "content": "<b>&"}]


def render(source, messages=(USER,), **more):
    return ChatTemplate(source).render(messages, **more)


@pytest.fixture(scope="module")
def smollm2():
    with open_gguf(smollm2_path()) as file:
        return ChatTemplate(file.text("tokenizer.chat_template"))


@needs_model
def test_smollm2_gives_the_text_of_the_reference_prompt(smollm2):
    question = {"role": "user", "content": "What is a swimming pool?"}
    text = smollm2.render([question], add_generation_prompt=True)
    assert text == vectors("smollm2_greedy")["prompts"]["short"]["text"]


@needs_model
def test_smollm2_with_a_system_message_and_without_a_prompt(smollm2):
    assert smollm2.render([{"role": "system", "content": "S"}, *CHAT]) == (
        "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\nHello<|im_end|>\n<|im_start|>user\n<b>&<|im_end|>\n"
    )


@needs_model
def test_a_long_chat_is_rendered_at_once(smollm2):
    start = time.perf_counter()
    text = smollm2.render([{"role": "user", "content": "hello " * 200}] * 1000)
    assert len(text) > 1_200_000
    assert time.perf_counter() - start < 1.0


HONEST = {
    "loops": (
        (
            "{% for m in messages %}{{ loop.index0 }}{{ m.role }}{% if not loop.last %},{% endif %}"
            "{% endfor %}"
        ),
        "0user,1assistant,2user",
    ),
    "backwards, with a namespace": (
        (
            "{% set ns = namespace(last=-1) %}{% for m in messages[::-1] %}"
            "{% if ns.last < 0 and m['role'] == 'user' %}"
            "{% set ns.last = messages|length - 1 - loop.index0 %}{% endif %}"
            "{% endfor %}{{ ns.last }}"
        ),
        "2",
    ),
    "lists that grow": (
        (
            "{% set ns = namespace(l=[]) %}{% for m in messages %}"
            "{% set ns.l = ns.l + [m.role[:1]] %}{% endfor %}{{ ns.l|join('-') }}"
        ),
        "u-a-u",
    ),
    "pairs": (
        "{% for key, value in messages[0].items() %}{{ key ~ '=' ~ value }};{% endfor %}",
        "role=user;content=Hi;",
    ),
    "two names at once": ("{% set a, b = 1, 2 %}{{ a + b * 3 }}", "7"),
    "text methods": (
        (
            "{{ ' x '.strip() }}{{ 'a</t>b'.split('</t>')[-1].lstrip('\\n') }}"
            "{{ 'abc'.startswith('ab') }}{{ 'a-b'.replace('-', '+') }}{{ ','.join(['1', '2']) }}"
        ),
        "xbTruea+b1,2",
    ),
    "filters": (
        (
            "{{ messages|map(attribute='role')|unique|list|length }}"
            "{{ messages|selectattr('role', 'equalto', 'user')|list|length }}"
            "{{ ' y '|trim|upper }}{{ nothing|default('d') }}{{ 'aXa'|replace('X', '_') }}"
        ),
        "22Yda_a",
    ),
    "JSON without HTML escapes": (
        "{{ messages[2]|tojson }}",
        '{"role": "user", "content": "<b>&"}',
    ),
    "JSON of other scripts": ("{{ ['七']|tojson }}{{ 1|tojson(indent=4) }}", '["七"]1'),
    "macros": ("{% macro tag(x) %}<{{ x }}>{% endmacro %}{{ tag('a') ~ tag('b') }}", "<a><b>"),
    "blocks of text": ("{% set t %}{{ 1 }}{{ 2 }}{% endset %}{{ t|trim }}", "12"),
    "loop controls": (
        (
            "{% for m in messages %}{% if loop.index == 2 %}{% break %}{% endif %}"
            "{{ loop.index }}{% endfor %}"
        ),
        "1",
    ),
    "generation marks": ("a{% generation %}{{ 'b' }}{% endgeneration %}c", "abc"),
    "trimmed blocks": ("  {% if true %}\nx\n  {% endif %}\ny", "x\ny"),
    "nothing is escaped": ("{{ messages[2].content }}", "<b>&"),
    "names that are missing are false": ("{% if tools %}t{% else %}n{% endif %}", "n"),
}


@pytest.mark.parametrize(
    ("source", "text"), [pytest.param(*case, id=name) for name, case in HONEST.items()]
)
def test_honest_templates(source, text):
    assert render(source, CHAT) == text


def test_further_names():
    template = ChatTemplate(
        "{{ bos_token }}{{ tools[0].name }}{{ enable_thinking }}{{ add_generation_prompt }}"
        "{{ strftime_now('%d %b %Y') }}",
        {"bos_token": "<s>"},
        now=lambda: datetime.datetime(2026, 2, 3, tzinfo=datetime.UTC),
    )
    more = {"tools": [{"name": "f"}], "enable_thinking": False}
    assert template.render([USER], add_generation_prompt=True, **more) == "<s>fFalseTrue03 Feb 2026"
    assert template.render([USER], **more).startswith("<s>fFalseFalse")


def test_a_template_that_refuses_says_its_reason():
    with pytest.raises(TemplateError, match=r"failed: Roles must alternate!$"):
        render("{{ raise_exception('Roles must alternate!') }}")


GROW = "{% set ns = namespace(x=XX) %}{% for i in range(99) %}{% set ns.x = YY %}{% endfor %}"
HOSTILE = {
    "Python's insides": "{{ ''.__class__.__mro__ }}",
    "insides by filter": "{{ ['']|map(attribute='__class__')|list|tojson }}",
    "insides by format": "{{ '{0.__class__}'.format(1) }}",
    "insides by format_map": "{{ '{a.__class__}'.format_map({'a': 1}) }}",
    "changing messages": "{{ messages.append(1) }}",
    "changing a message": "{{ messages[0].update({'role': 'x'}) }}",
    "other files": "{% include 'secrets' %}",
    "other modules": "{% import 'os' as os %}",
    "endless loops": (
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    ),
    "a range that is too long": "{{ range(10000000000)|length }}",
    "ranges in loops": "{% for i in range(99999) %}{{ range(99999)|list|length }}{% endfor %}",
    "endless output": "{% for a in range(99999) %}{{ messages[0].content }}{% endfor %}",
    "endless recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "branching recursion": (
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(50) }}"
    ),
    "recursive loops": "{% for x in [1] recursive %}{{ loop([1]) }}{{ loop([1]) }}{% endfor %}",
    "repeating a text": "{{ 'a' * 1000000000 }}",
    "repeating a list": "{{ [1] * 1000000000 }}",
    "powers": "{{ 9 ** 9 ** 9 }}",
    "products": GROW.replace("XX", "9").replace("YY", "ns.x * ns.x"),
    "doubling with ~": GROW.replace("XX", "'aaaa'").replace("YY", "ns.x ~ ns.x"),
    "doubling with +": GROW.replace("XX", "'aaaa'").replace("YY", "ns.x + ns.x"),
    "doubling a list": GROW.replace("XX", "['a']").replace("YY", "ns.x + ns.x"),
    "nesting a list": GROW.replace("XX", "['a']").replace("YY", "[ns.x, ns.x]") + "{{ ns.x }}",
    "nesting a map": GROW.replace("XX", "'a'").replace("YY", "{'a': ns.x, 'b': ns.x}"),
    "nesting by dict()": GROW.replace("XX", "'a'").replace("YY", "dict(a=ns.x, b=ns.x)"),
    "replace on itself": GROW.replace("XX", "'aaaa'").replace("YY", "ns.x.replace('a', ns.x)"),
    "replace filter": GROW.replace("XX", "'aaaa'").replace("YY", "ns.x|replace('a', ns.x)"),
    "join on itself": GROW.replace("XX", "'aaaa'").replace("YY", "ns.x.join([ns.x, ns.x])"),
    "join filter": GROW.replace("XX", "'aaaa'").replace("YY", "[ns.x, ns.x]|join(ns.x)"),
    "doubling in a block": (
        "{% set ns = namespace(x='aaaa') %}{% for i in range(99) %}"
        "{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}{% endfor %}"
    ),
    "doubling in a macro": (
        "{% macro f(x) %}{{ x }}{{ x }}{% endmacro %}"
        "{% set ns = namespace(x='aaaa') %}{% for i in range(99) %}"
        "{% set ns.x = f(ns.x) %}{% endfor %}"
    ),
    "padding with %": "{{ '%1000000000d' % 1 }}",
    "padding with a method": "{{ 'a'.ljust(1000000000) }}",
    "padding with format": "{{ '{:1000000000}'.format(1) }}",
    "padding with a filter": "{{ 'a'|center(1000000000) }}",
    "wide JSON": "{{ messages|tojson(indent=1000000000) }}",
    "a syntax error": "{% if",
    "an unknown tag": "{% launch %}",
    "a name of nothing": "{{ a.b.c }}",
    "a division by zero": "{{ 1 / 0 }}",
}


@pytest.mark.parametrize("source", HOSTILE.values(), ids=HOSTILE)
def test_hostile_templates_are_refused_in_time(source, monkeypatch):
    monkeypatch.setattr(template_sandbox, "DEADLINE_S", 0.5)
    start = time.perf_counter()
    with pytest.raises(TemplateError, match=r"^The model's chat template "):
        render(source, [{"role": "user", "content": "x" * 1000}])
    assert time.perf_counter() - start < 5


def test_an_absurdly_long_template_is_refused():
    with pytest.raises(TemplateError, match="absurdly long"):
        ChatTemplate("x" * (1 << 19))


def test_the_budget_is_per_rendering(monkeypatch):
    monkeypatch.setattr(template_sandbox, "MAX_STEPS", 100)
    template = ChatTemplate("{% for i in range(40) %}{{ i }}{% endfor %}")
    first = template.render([USER])
    assert all(template.render([USER]) == first for _ in range(5))
