"""jinja2 as chat templates expect it, with every way to grow or to spin under a bound.

jinja2's own sandbox keeps a template from Python's insides. What it allows, it allows without
measure: here loop rounds, calls and filters are counted and timed, strings and lists cannot grow
past a bound, and filters are only those that chat templates use.
"""

from __future__ import annotations

import functools
import json
import time
from typing import TYPE_CHECKING, Any

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

if TYPE_CHECKING:
    import datetime
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from jinja2.parser import Parser
    from jinja2.runtime import Context

__all__ = ["Sandbox"]

MAX_CHARACTERS = 1 << 22
"""Of the output and of every value on the way. API asks hold at most 1.5 million."""
MAX_STEPS = 10_000_000
"""Loop rounds, calls and values looked at, of one rendering. 1000 messages take some 20,000, or a
few millions when a template builds its own list of them."""
DEADLINE_S = 2.0

_FILTERS = """
    abs capitalize count d default dictsort e escape first float int items last length list
    lower map max min reject rejectattr reverse round safe select selectattr sort string sum title
    trim unique upper
"""
_FORBIDDEN_METHODS = """
    center expandtabs format format_map ljust maketrans rjust to_bytes translate zfill
"""
_COUNTED, _BOUNDED = "poolhouse counted", "poolhouse bounded"  # no template can spell these
_GROWING = (nodes.Concat, nodes.List, nodes.Tuple, nodes.Dict)


class Sandbox(ImmutableSandboxedEnvironment):
    """An environment for one template at a time. ``now`` answers ``strftime_now``."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self, now: Callable[[], datetime.datetime]) -> None:
        super().__init__(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationBlock]
        )
        self._budget = _Budget()
        self._forbidden = frozenset(_FORBIDDEN_METHODS.split())
        chosen = {name: self.filters[name] for name in _FILTERS.split()}
        chosen |= {"tojson": _to_json, "replace": self._replace, "join": self._join}
        self.filters = {name: self._metered(each) for name, each in chosen.items()}
        self.filters |= {_COUNTED: self._budget.rounds, _BOUNDED: self._budget.weighed}
        self.globals = {
            "range": self._range,
            "dict": dict,
            "namespace": _QuietNamespace,
            "raise_exception": _raise_exception,
            "strftime_now": lambda form: now().strftime(form[:100]),
        }

    def run(self, template: jinja2.Template, values: Mapping[str, object]) -> str:
        """The template's whole output. Raises what the template provokes."""
        self._budget.refill()
        pieces: list[str] = []
        for piece in template.generate(values):
            self._budget.write(len(piece))
            pieces.append(piece)
        return "".join(pieces)

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        """Put a meter into every loop and every expression that makes a bigger value."""
        tree = super()._parse(source, name, filename)
        for node in list(tree.find_all(nodes.Node)):
            if isinstance(node, nodes.For):
                node.iter = _filtered(node.iter, _COUNTED)
            elif isinstance(node, nodes.AssignBlock) and node.filter is None:
                node.filter = nodes.Filter(None, _BOUNDED, [], [], None, None, lineno=node.lineno)
            _meter_children(node)
        return tree

    def _metered[**P, R](self, function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def metered(*args: P.args, **kwargs: P.kwargs) -> R:
            self._budget.spend()
            for each in args:
                if isinstance(each, str):
                    self._budget.spend(len(each) >> 10)
            return function(*args, **kwargs)

        return metered

    def _range(self, *bounds: int) -> range:
        values = range(*bounds)
        self._budget.spend(len(values))
        return values

    def is_safe_attribute(self, obj: object, attr: str, value: object) -> bool:
        if isinstance(obj, str | int | bytes) and attr in self._forbidden:
            return False
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: object) -> None:
        """No wrapper: ``str.format`` is forbidden as a whole (it pads without bound)."""

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        self._budget.spend()
        owner, name = getattr(obj, "__self__", None), getattr(obj, "__name__", "")
        if isinstance(owner, str) and name == "replace":
            return self._replace(owner, *args)
        if isinstance(owner, str) and name == "join":
            return self._join(args[0], owner)
        return self._budget.weighed(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        match operator:
            case "**":
                raise SecurityError("it raises to powers")
            case "%" if isinstance(left, str | bytes):
                raise SecurityError("it formats with %")
            case "*" if not (isinstance(left, int | float) and isinstance(right, int | float)):
                raise SecurityError("it repeats values")
            case "*" if max(abs(left), abs(right)) > 1 << 53:
                raise SecurityError("it multiplies without end")
        return self._budget.weighed(super().call_binop(context, operator, left, right))

    def _replace(self, text: object, old: object, new: object, count: int = -1) -> str:
        source, old_text, new_text = str(text), str(old), str(new)
        length = len(source) + source.count(old_text) * len(new_text)
        self._budget.bound(length)
        self._budget.spend(length >> 10)
        return source.replace(old_text, new_text, count)

    def _join(
        self, values: Iterable[Any], separator: object = "", attribute: str | None = None
    ) -> str:
        if attribute is not None:
            values = (self.getitem(each, attribute) for each in values)
        pieces: list[str] = []
        length = 0
        for value in self._budget.rounds(values):
            pieces.append(str(value))
            length += len(pieces[-1]) + len(str(separator))
            self._budget.bound(length)
        return str(separator).join(pieces)


class _Budget:
    """What is left to one rendering: steps, time, output."""

    __slots__ = ("_deadline", "_steps", "_written")

    def __init__(self) -> None:
        self.refill()

    def refill(self) -> None:
        self._steps = MAX_STEPS
        self._written = 0
        self._deadline = time.monotonic() + DEADLINE_S

    def spend(self, steps: int = 1) -> None:
        self._steps -= steps
        if self._steps < 0 or time.monotonic() > self._deadline:
            raise SecurityError("it computes without end")

    def write(self, characters: int) -> None:
        self._written += characters
        self.bound(self._written)

    def bound(self, characters: int) -> None:
        if characters > MAX_CHARACTERS:
            raise SecurityError("it writes without end")

    def rounds(self, values: Iterable[Any]) -> Iterator[Any]:
        """The rounds of a loop."""
        for value in values:
            self.spend()
            yield value

    def weighed[T](self, value: T) -> T:
        """``value``, unless it would spell out too long with everything inside of it."""
        weight = 0
        stack: list[object] = [value]
        while stack:
            each = stack.pop()
            weight += len(each) if isinstance(each, str) else 1
            self.bound(weight)
            if isinstance(each, list | tuple):
                self.spend(len(each))
                stack.extend(each)
            elif isinstance(each, dict):
                self.spend(len(each))
                stack.extend(each)
                stack.extend(each.values())
        self.spend(weight >> 10)
        return value


class _QuietNamespace(Namespace):
    """Namespaces can hold each other: spelled out they could be endless."""

    def __repr__(self) -> str:
        return "<namespace>"


class _GenerationBlock(Extension):
    """``{% generation %}`` marks the answer for training; here it is just its content."""

    tags = {"generation"}  # noqa: RUF012 - jinja2 reads and types it as an instance's set

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _meter_children(node: nodes.Node) -> None:
    """Let the values of growing expressions under ``node`` pass the scales."""
    for name, value in list(node.iter_fields()):
        if isinstance(value, list):
            value[:] = [_metered_if_growing(each) for each in value]
        else:
            setattr(node, name, _metered_if_growing(value))


def _metered_if_growing(value: Any) -> Any:
    # A tuple that is assigned to ("for a, b in ...") is a name, not a value.
    if isinstance(value, _GROWING) and getattr(value, "ctx", "load") == "load":
        return _filtered(value, _BOUNDED)
    return value


def _filtered(value: Any, name: str) -> nodes.Filter:
    return nodes.Filter(value, name, [], [], None, None, lineno=value.lineno)


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as chat templates are written for: no HTML escapes, unlike jinja2's own filter."""
    if indent is not None and not 0 <= indent <= 8:
        raise SecurityError("it indents without end")
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _raise_exception(message: object) -> None:
    raise jinja2.TemplateError(str(message))
