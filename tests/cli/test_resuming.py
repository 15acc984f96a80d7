"""Taking up a former room: which one, with which choices, under which id, and how it closes."""

import asyncio
import os
import signal
from dataclasses import replace

import pytest

from poolhouse_node.cli import resuming
from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.cli.resuming import (
    FormerRoom,
    claim,
    closed_at_the_end,
    find_former,
    lock_room,
    recorded,
    resumed,
)
from poolhouse_node.cli.running import _run
from poolhouse_node.cli.state import RoomLock, RoomState
from poolhouse_node.cli.up import UpOptions
from poolhouse_node.generate.sampler import Sampling
from poolhouse_node.room.record import (
    RecordedAsk,
    RecordedExchange,
    RecordedLimit,
    RecordedSeat,
    RoomMemory,
    RunningAnswer,
)
from poolhouse_node.rtc.signaling import SignalingError
from tests.support.kept_room import CODE, SERVERS, choices, host_options, kept

NOW = 10_000.0
ASK = RecordedAsk(asker="a", name="a", text="q")
RAW = RecordedAsk(asker="a", name="a", text="q", prompt_ids=[1, 2])
MEMORY = RoomMemory(
    answers=4,
    exchanges=[RecordedExchange(name="a", question="q", answer_ids=[1])],
    seats=[RecordedSeat(name="attic", lo=0, hi=30)],
    limits=[RecordedLimit(name="cellar", most_gb=2.0, deaths=[])],
    running=RunningAnswer(ask=ASK, mid=4, shown_ids=[1]),
    waiting=[ASK, RAW],
)


@pytest.fixture
def environment(tmp_path):
    return {"POOLHOUSE_STATE": str(tmp_path)}


@pytest.fixture
def find(environment):
    """Find the former room; gives its code, and what was said."""

    def find(**said) -> tuple[str | None, str]:
        of_up, lines = said.pop("of_up", False), []
        former = find_former(
            host_options(**said), environment, lines.append, of_up=of_up, now=lambda: NOW
        )
        code = None
        if former is not None:
            code = former.options.code
            with former.lock:
                pass
        assert len(lines) == 1
        return code, lines[0]

    return find


def save(environment, code: str, age_s: float = 1.0, **other) -> RoomState:
    state = RoomState.of(code, environment)
    state.save_record(kept(NOW - age_s, code=code, **other))
    return state


# ---- which room ---------------------------------------------------------------------------------


def test_the_newest_room_is_taken_up(environment, find):
    save(environment, "ABCDEF", 30)
    save(environment, CODE, 10, memory=MEMORY)
    code, line = find()
    assert code == CODE
    assert "4TK-G9P" in line
    assert "4 questions so far, one was being answered, 2 waiting" in line


def test_the_room_that_was_said_is_taken_up(environment, find):
    save(environment, "ABCDEF", 30)
    save(environment, CODE, 10)
    assert find(code="abc-def")[0] == "ABCDEF"


@pytest.mark.parametrize(("age_s", "code"), [(899, CODE), (901, None)])
def test_a_record_is_of_use_for_a_quarter_of_an_hour(environment, find, age_s, code):
    save(environment, CODE, age_s)
    assert find()[0] == code


def test_without_a_room_a_new_one_is_opened(find):
    code, line = find()
    assert code is None
    assert line == "No room was hosted here in the last 15 minutes: opening a new one."
    assert find(code=CODE)[1].startswith("The room 4TK-G9P was not hosted here")


def test_a_room_that_runs_is_left_to_its_host(environment, find):
    save(environment, "ABCDEF", 30)
    with save(environment, CODE, 10).lock():
        assert find()[0] == "ABCDEF"
        assert find(code=CODE)[0] is None


def test_rooms_of_up_are_taken_up_by_up_alone(environment, find):
    save(environment, "ABCDEF", 30)
    save(environment, CODE, 10, servers=[])
    assert find()[0] == "ABCDEF"
    assert find(of_up=True)[0] == CODE
    assert find(of_up=True, code="ABCDEF")[0] is None


def test_what_is_found_is_locked(environment):
    state = save(environment, CODE)
    former = find_former(host_options(), environment, lambda line: None, now=lambda: NOW)
    with lock_room(state, former):
        assert state.lock() is None
        with pytest.raises(CommandFailed, match="runs on this machine already"):
            lock_room(state, None)


# ---- the choices --------------------------------------------------------------------------------

OPENED = host_options(
    servers=list(SERVERS),
    model="https://models.example/a.gguf",
    sampling=Sampling(0.7, 12),
    max_tokens=77,
    name="attic",
    pledge_gb=3.5,
    code=CODE,
    split=(20, 10),
    context_size=1024,
    system="Be brief.",
    is_open=True,
    denies_unknown=True,
    takes_older_devices=True,
    takes_api_clients=False,
    redeal_after_s=None,
    wait=3,
)


def keep_choices(options=OPENED, **other):
    return recorded(options, code=CODE, host_name="attic", model_key="key", **other)


def test_choices_come_back_as_they_were():
    assert resumed(host_options(), keep_choices()) == OPENED


def test_defaults_stay_defaults():
    plain = host_options(code=CODE, name="attic")
    assert resumed(host_options(servers=["elsewhere:1"]), keep_choices(plain)) == plain


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("signal", {"servers": ["other.lan"]}),
        ("temperature", {"sampling": Sampling(0.1, 12)}),
        ("top_k", {"sampling": Sampling(0.7, 3)}),
        ("max_tokens", {"max_tokens": 5}),
        ("name", {"name": "loft"}),
        ("pledge", {"pledge_gb": 1.0}),
        ("split", {"split": (15, 15)}),
        ("context_size", {"context_size": 512}),
        ("system", {"system": ""}),
        ("open_room", {"is_open": False}),
        ("deny_unknown", {"denies_unknown": False}),
        ("take_older_devices", {"takes_older_devices": False}),
        ("api_clients", {"takes_api_clients": True}),
        ("redeal_after", {"redeal_after_s": 5.0}),
        ("wait", {"wait": 0}),
    ],
)
def test_what_is_said_anew_counts(option, said):
    now = host_options(said=frozenset({option}), **said)
    expected = replace(OPENED, said=now.said, **{k: v for k, v in said.items() if k != "servers"})
    if "servers" in said:
        expected = replace(expected, place=now.place)
    assert resumed(now, keep_choices()) == expected


def test_what_was_chosen_for_one_model_is_not_for_another():
    other = resumed(host_options(model="qwen3-1.7b", said=frozenset({"model"})), keep_choices())
    assert other.model == "qwen3-1.7b"
    assert other.split is None
    assert other.context_size is None
    same = resumed(host_options(model=OPENED.model, said=frozenset({"model"})), keep_choices())
    assert same.split == OPENED.split


def test_a_model_file_is_found_from_another_folder(tmp_path, monkeypatch):
    (tmp_path / "own.gguf").touch()
    monkeypatch.chdir(tmp_path)
    assert keep_choices(host_options(model="own.gguf")).model == str(tmp_path / "own.gguf")
    assert keep_choices(host_options(model="smollm2-135m")).model == "smollm2-135m"


def test_a_temperature_that_is_no_number_is_greedy():
    assert keep_choices(host_options(sampling=Sampling(float("nan"), 1))).temperature == 0.0


@pytest.mark.parametrize(
    ("said", "devices", "split"),
    [(set(), 4, (10, 10, 10)), ({"devices"}, 2, None), ({"devices", "split"}, 2, (20, 10))],
)
def test_up_starts_as_many_devices_as_before(said, devices, split):
    host = host_options(said=frozenset(said), split=(20, 10) if "split" in said else None)
    up = UpOptions(host, 2, None, None, as_json=False)
    before = keep_choices(replace(OPENED, split=(10, 10, 10)), devices=4)
    found = up.resumed(before)
    assert (found.devices, found.host.split) == (devices, split)


def test_the_memory_counts_for_its_model():
    former = FormerRoom(choices(model_key="one"), MEMORY, RoomLock(-1))
    assert former.memory_for("one") == MEMORY
    other = former.memory_for("two")
    assert other == RoomMemory(answers=4, waiting=[ASK])


# ---- the id -------------------------------------------------------------------------------------


class Server:
    """A place whose server refuses some times."""

    def __init__(self, *failures: str) -> None:
        self.failures, self.opened = list(failures), []

    async def open(self, peer_id: str) -> str:
        self.opened.append(peer_id)
        if self.failures:
            raise SignalingError(self.failures.pop(0), "no")
        return "network"


async def pause(seconds: float) -> None:
    assert seconds == 3.0


async def test_the_id_is_claimed_until_the_server_lets_go():
    server, said = Server("id-taken", "id-taken"), []
    assert await claim(server, CODE, said.append, pause=pause) == "network"
    assert server.opened == ["pooled-room-4TKG9P"] * 3
    assert len(said) == 1


async def test_an_id_that_stays_taken_is_somebody_elses():
    server = Server(*["id-taken"] * 100)
    with pytest.raises(CommandFailed, match="4TK-G9P is open elsewhere"):
        await claim(server, CODE, lambda line: None, pause=pause)
    assert len(server.opened) == resuming.CLAIM_TRIES == 30


async def test_other_refusals_are_final():
    server = Server("network")
    with pytest.raises(SignalingError):
        await claim(server, CODE, lambda line: None, pause=pause)
    assert len(server.opened) == 1


# ---- the end ------------------------------------------------------------------------------------


class Closing:
    """A host and its keeper, which note what they are told."""

    def __init__(self) -> None:
        self.told = []

    def room_is_over(self) -> None:
        self.told.append("over")

    async def close_room(self, reason: str) -> None:
        self.told.append("closed")


async def test_the_end_of_the_work_closes_the_room():
    closing = Closing()
    async with closed_at_the_end(closing, closing):
        assert closing.told == []
    assert closing.told == ["over", "closed"]


async def test_a_failure_leaves_the_room_to_a_host_that_resumes():
    closing = Closing()
    with pytest.raises(CommandFailed):
        async with closed_at_the_end(closing, closing):
            raise CommandFailed("It broke.")
    assert closing.told == []


@pytest.mark.parametrize(
    ("number", "told"), [(signal.SIGINT, ["over", "closed"]), (signal.SIGTERM, [])]
)
def test_ctrl_c_closes_the_room_and_sigterm_leaves_it(number, told):
    closing = Closing()

    async def main() -> int:
        async with closed_at_the_end(closing, closing):
            os.kill(os.getpid(), number)
            await asyncio.Event().wait()
        return 0

    assert _run(main()) in {130, 143}
    assert closing.told == told
