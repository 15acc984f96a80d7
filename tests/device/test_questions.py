"""A room's questions before, between and after its deals."""

from dataclasses import dataclass, field

import pytest

from poolhouse_node.device.answering import GenerationSettings
from poolhouse_node.device.events import Share
from poolhouse_node.device.model import RoomModel
from poolhouse_node.device.questions import Questions
from poolhouse_node.generate.sampler import Sampling
from poolhouse_node.room.asks import TEXT_CHARACTERS_MAX, Ask, AskRefused
from poolhouse_node.room.record import RecordedAsk, RecordedLimit, RecordedSeat, RoomMemory
from poolhouse_node.wire.messages.asking import Busy
from tests.support.fake_chain import FakeChain
from tests.support.fake_model import LAYERS, FakeTokenizer, InlineCompute, make_shard, needs
from tests.support.virtual_time import run_virtual


@dataclass
class FakeKeeper:
    chain: FakeChain = field(default_factory=FakeChain)
    degraded: str | None = None
    shares: list[Share] = field(default_factory=lambda: [Share("host", 0, LAYERS, 0.1)])

    async def until_whole(self, stopped) -> bool:
        return True

    def give_up_waiting(self) -> None: ...

    def awaited(self) -> str:
        return ""


class Room:
    def __init__(self, remembered: RoomMemory | None = None) -> None:
        self.keeper = FakeKeeper()
        self.told, self.saved = [], []
        self.limit = RecordedLimit(name="ann", most_gb=1.0, deaths=[])
        self.questions = Questions(
            self.keeper,
            RoomModel("fake", "Fake", needs(), 2048, FakeTokenizer()),
            InlineCompute(),
            GenerationSettings(Sampling(), 4),
            draw=lambda: 0.5,
            broadcast=lambda message: None,
            tell=lambda peer_id, message: self.told.append((peer_id, message)),
            notify=lambda event: None,
            my_id=lambda: "me",
            save=self.saved.append,
            remembered=remembered,
            limits=lambda: [self.limit],
        )

    def deal(self):
        return self.questions.dealt(make_shard((0, LAYERS), context_size=2048, host=True))


def my(text: str) -> Ask:
    return Ask("me", "host", text)


def virtual(scenario):
    async def main() -> None:
        await scenario()

    run_virtual(main())


def test_before_the_first_deal_questions_are_refused():
    room = Room()
    with pytest.raises(AskRefused, match="not loaded yet"):
        room.questions.ask(my("why?"))
    room.questions.device_asks("a", "ann", "why?")
    assert room.told == [
        ("a", Busy(why="The model is not loaded yet; ask again when the room is online."))
    ]
    room.questions.stop("a")
    room.questions.withdraw("a")
    room.questions.forget_caches("ann left")
    assert (room.questions.is_busy, room.questions.waiting) == (False, 0)


def test_a_room_that_is_degraded_says_why():
    async def scenario():
        room = Room()
        room.deal()
        room.keeper.degraded = "ann left."
        with pytest.raises(AskRefused, match=r"^ann left\.$"):
            room.questions.ask(my("why?"))

    virtual(scenario)


def test_what_a_device_asks_is_cut_and_nothing_is_made_of_nothing():
    async def scenario():
        room = Room()
        answering = room.deal()
        room.questions.device_asks("a", "ann", " \n")
        assert not room.questions.is_busy
        room.questions.device_asks("a", "ann", "x" * (TEXT_CHARACTERS_MAX + 1))
        running = answering.queue.running
        assert (running.asker, running.name) == ("a", "ann")
        assert running.text == "x" * TEXT_CHARACTERS_MAX
        assert room.told == []

    virtual(scenario)


def test_a_later_deal_keeps_the_queue_and_changes_what_computes():
    async def scenario():
        room = Room()
        answering = room.deal()
        first = answering.trunk
        room.questions.ask(my("one?"))
        room.questions.device_asks("a", "ann", "two?")
        assert room.deal() is answering
        assert answering.trunk is not first
        assert (room.questions.is_busy, room.questions.waiting) == (True, 1)
        room.questions.withdraw("a")
        assert room.questions.waiting == 0

    virtual(scenario)


def test_a_device_may_stop_its_own_answer_only():
    async def scenario():
        room = Room()
        answering = room.deal()
        room.questions.device_asks("a", "ann", "one?")
        room.questions.stop("b")
        assert not answering._stop
        room.questions.stop("a")
        assert answering._stop

    virtual(scenario)


def test_what_the_caches_hold_is_forgotten():
    async def scenario():
        room = Room()
        trunk = room.deal().trunk
        trunk.fed = [1, 2]
        room.questions.forget_caches("ann left")
        assert trunk.fed is None

    virtual(scenario)


def test_a_question_is_saved_with_the_seats_and_the_limits():
    async def scenario():
        room = Room()
        assert room.questions.memory() == RoomMemory(limits=[room.limit])
        room.deal()
        room.questions.ask(my("why?"))
        assert room.saved[-1].seats == [RecordedSeat(name="host", lo=0, hi=LAYERS)]
        assert room.saved[-1].limits == [room.limit]

    virtual(scenario)


def test_a_host_that_is_started_again_goes_on_from_what_it_left():
    async def scenario():
        asked = RecordedAsk(asker="a", name="ann", text="why?")
        left = RoomMemory(answers=3, waiting=[asked])
        room = Room(left)
        assert room.questions.memory().waiting == [asked]
        answering = room.deal()
        assert answering.queue.running.text == "why?"
        assert room.questions.memory().answers == 3
        room.deal()
        assert room.questions.waiting == 0, "it is taken up once"

    virtual(scenario)
