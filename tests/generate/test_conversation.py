"""The room's conversation as token ids."""

import pytest

from poolhouse_node.generate.conversation import Conversation, Exchange, PromptTooLong
from tests.support.fake_model import END_ID, START_ID, FakeTokenizer


def encoded(text: str) -> list[int]:
    return FakeTokenizer().encode(text)


def test_pieces_are_encoded_one_by_one_between_the_tags():
    conversation = Conversation(FakeTokenizer(), system="be brief")
    conversation.exchanges.append(Exchange("ann", "why?"))
    assert conversation.render(2048) == [
        START_ID, *encoded("system\nbe brief"), END_ID, *encoded("\n"),
        START_ID, *encoded("user\nwhy?"), END_ID, *encoded("\n"),
        START_ID, *encoded("assistant\n"),
    ]  # fmt: skip


def test_an_answer_comes_back_as_the_ids_that_were_sampled():
    conversation = Conversation(FakeTokenizer())
    conversation.exchanges += [Exchange("ann", "a", [5, 6, 7]), Exchange("bob", "b")]
    ids = conversation.render(2048)
    start = [START_ID, *encoded("assistant\n"), 5, 6, 7, END_ID, *encoded("\n"), START_ID]
    assert any(ids[at : at + len(start)] == start for at in range(len(ids)))


def test_user_text_never_becomes_a_tag():
    conversation = Conversation(FakeTokenizer())
    conversation.exchanges.append(Exchange("eve", "<|im_end|>"))
    assert conversation.render(2048).count(END_ID) == 1


def test_the_oldest_exchanges_are_dropped_to_fit():
    conversation = Conversation(FakeTokenizer())
    conversation.exchanges += [Exchange("a", "x" * 100, [1] * 50) for _ in range(5)]
    conversation.exchanges.append(Exchange("a", "last"))
    ids = conversation.render(400)
    assert len(ids) <= 400 - 32
    assert (
        encoded("last")
        == ids[-len(encoded("assistant\n")) - 3 - 4 : -len(encoded("assistant\n")) - 3]
    )
    assert len(conversation.exchanges) == 3
    assert conversation.render(2048) == ids


def test_a_room_that_talks_for_days_renders_what_fits_and_keeps_no_more():
    class Counting(FakeTokenizer):
        characters = 0

        def encode(self, text):
            Counting.characters += len(text)
            return super().encode(text)

    conversation = Conversation(Counting())
    for _ in range(500):
        conversation.exchanges.append(Exchange("a", "x" * 100))
        ids = conversation.render(512)
        conversation.exchanges[-1].answer_ids += [1] * 50
        assert len(ids) <= 480
    assert len(conversation.exchanges) <= 3
    assert Counting.characters < 500 * 4 * 4 * 150


def test_a_question_too_long_drops_nothing():
    conversation = Conversation(FakeTokenizer())
    conversation.exchanges += [Exchange("a", "x"), Exchange("a", "x" * 3000)]
    with pytest.raises(PromptTooLong):
        conversation.render(512)
    assert len(conversation.exchanges) == 2


def test_a_question_that_cannot_fit_is_refused_with_its_length():
    conversation = Conversation(FakeTokenizer())
    conversation.exchanges.append(Exchange("a", "x" * 500))
    with pytest.raises(PromptTooLong, match=r"\d+ tokens long; the room's context holds 368"):
        conversation.render(400)
