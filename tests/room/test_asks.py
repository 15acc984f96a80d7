"""The queue of questions."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_node.room.asks import Ask, AskQueue, AskRefused


def ask(asker: str) -> Ask:
    return Ask(asker, asker, "why?")


def test_the_first_question_runs_and_the_next_ones_wait():
    queue = AskQueue()
    assert queue.put(ask("a")) == 0
    assert queue.put(ask("b")) == 1
    assert queue.put(ask("a")) == 2
    assert queue.places() == [("b", 1), ("a", 2)]
    assert queue.next().asker == "b"
    assert queue.next().asker == "a"
    assert queue.next() is None
    assert queue.put(ask("c")) == 0


def test_a_device_may_have_two_questions_waiting():
    queue = AskQueue()
    for _ in range(3):
        queue.put(ask("a"))
    with pytest.raises(AskRefused, match="2 questions"):
        queue.put(ask("a"))
    assert queue.put(ask("b")) == 3


def test_ten_questions_may_wait():
    queue = AskQueue()
    for number in range(11):
        queue.put(ask(str(number)))
    with pytest.raises(AskRefused, match="10 questions"):
        queue.put(ask("late"))


def test_a_device_that_leaves_takes_its_waiting_questions_along():
    queue = AskQueue()
    for asker in "aabc":
        queue.put(ask(asker))
    assert queue.withdraw("a") == 1
    assert queue.places() == [("b", 1), ("c", 2)]
    assert queue.running.asker == "a"


@given(st.lists(st.one_of(st.sampled_from("abcdefgh"), st.just("next"))))
def test_bounds_and_order_hold_for_any_use(steps):
    queue, model = AskQueue(), []
    for step in steps:
        if step == "next":
            model = model[1:]
            assert (queue.next() and queue.running.asker) == (model[0] if model else None)
        else:
            waiting = model[1:]
            full = len(waiting) >= 10 or waiting.count(step) >= 2
            if model and full:
                with pytest.raises(AskRefused):
                    queue.put(ask(step))
            else:
                assert queue.put(ask(step)) == len(model)
                model.append(step)
