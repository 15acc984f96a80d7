"""``poolhouse join`` with several rooms: what is asked of it, and what it says."""

import asyncio
import json
from dataclasses import replace

import pytest

from poolhouse_node.cli import holding
from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.cli.holding import hold_layers
from poolhouse_node.cli.join import JoinOptions
from poolhouse_node.cli.main import app
from poolhouse_node.cli.measuring import MetricsOptions
from poolhouse_node.cli.screen import JsonLines
from poolhouse_node.cli.view import TerminalView
from poolhouse_node.device import events as ev
from poolhouse_node.device.joined import JoinFailed, JoinRefused
from poolhouse_node.room.pledge import GIB

OPTIONS = JoinOptions("", None, "libdatachannel", {}, name="shared", pledge_gb=4.0)


class FakeDevice:
    """A joined device whose room ends as the test says."""

    def __init__(self, code, **given) -> None:
        self.code, self.name, self.given, self.lent = code, "shared", given, []
        self.over = asyncio.get_running_loop().create_future()

    def lend(self, gb: float) -> None:
        self.lent.append(gb)

    async def join(self) -> None:
        pass

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass


@pytest.fixture
def devices(monkeypatch):
    """Every device that is made, by its room's code."""
    made: dict[str, FakeDevice] = {}

    async def make_joined(place, code, notify, **given):
        made[code] = FakeDevice(code, notify=notify, **given)
        return made[code]

    async def while_inside(device):
        return await device.over

    monkeypatch.setattr(holding, "make_joined", make_joined)
    monkeypatch.setattr(holding, "while_inside", while_inside)
    monkeypatch.setattr("poolhouse_node.cli.loading.EngineLoader.warm_up", lambda self: None)
    return made


async def joining(*rooms: str, as_json: bool = False) -> asyncio.Task[int]:
    """The command, once it is in every room."""
    task = asyncio.ensure_future(hold_layers(OPTIONS, rooms, as_json=as_json))
    for _ in range(5):
        await asyncio.sleep(0)
    return task


async def test_rooms_share_turns_weights_and_the_pledge(devices):
    task = await joining("4TK-G9P", "ABC-DEF")
    first, second = devices["4TKG9P"], devices["ABCDEF"]
    assert first.given["compute"].turns is second.given["compute"].turns
    assert first.given["loader"].shelf is second.given["loader"].shelf
    assert first.given["pledge_gb"] == second.given["pledge_gb"] == 4.0
    first.given["loader"].budget.take("part", GIB, 0)
    await asyncio.sleep(0)
    assert (first.lent[-1], second.lent[-1]) == (4.0, 3.0)
    for device in devices.values():
        device.over.set_result(0)
    assert await task == 0


async def test_a_single_room_may_take_the_pledge_and_has_no_label(devices, capsys):
    task = await joining("4TK-G9P")
    assert devices["4TKG9P"].given["loader"].budget.left_bytes() == 4 * GIB
    devices["4TKG9P"].over.set_result(1)
    assert await task == 1
    assert capsys.readouterr().err == "Joined as shared.\n"


@pytest.mark.parametrize(
    ("ends", "status"), [((0, 0), 0), ((0, 1), 1), ((JoinRefused("No."), 0), 1)]
)
async def test_every_room_ends_on_its_own(devices, ends, status):
    task = await joining("4TK-G9P", "ABC-DEF")
    for device, end in zip(devices.values(), ends, strict=True):
        assert not task.done()
        if isinstance(end, int):
            device.over.set_result(end)
        else:
            device.over.set_exception(end)
        await asyncio.sleep(0)
    assert await task == status


async def test_a_fault_of_ours_in_one_room_is_logged_and_ends_only_that(devices, capsys, caplog):
    task = await joining("4TK-G9P", "ABC-DEF")
    devices["4TKG9P"].over.set_exception(ZeroDivisionError("oops"))
    await asyncio.sleep(0)
    assert not task.done()
    devices["ABCDEF"].over.set_result(0)
    assert await task == 1
    assert "4TK-G9P A fault in this program ended this room." in capsys.readouterr().err
    assert "ZeroDivisionError" in caplog.text


async def test_why_a_single_room_cannot_be_joined_is_the_commands_failure(devices):
    task = await joining("4TK-G9P")
    devices["4TKG9P"].over.set_exception(JoinFailed("No room."))
    with pytest.raises(JoinFailed, match="No room"):
        await task


async def test_a_room_is_given_once(devices):
    with pytest.raises(CommandFailed, match="4TK-G9P is given twice"):
        await hold_layers(OPTIONS, ["4TK-G9P", "ABC-DEF", "4tkg9p"], as_json=False)


async def test_every_line_says_its_room(devices, capsys):
    task = await joining("4TK-G9P", "ABC-DEF")
    devices["ABCDEF"].given["notify"](ev.RoomOnline("M", 2048))
    for device in devices.values():
        device.over.set_result(0)
    await task
    lines = capsys.readouterr().err.splitlines()
    assert "4TK-G9P Joined as shared." in lines
    assert "ABC-DEF M is online, context 2048 tokens" in lines


async def test_who_waits_for_another_rooms_layers_says_so(devices, capsys):
    task = await joining("4TK-G9P", "ABC-DEF")
    devices["ABCDEF"].given["loader"].waits()
    for device in devices.values():
        device.over.set_result(0)
    await task
    waits = "ABC-DEF Layers of another room are loaded first; those of this one come next."
    assert waits in capsys.readouterr().err.splitlines()


def test_a_deal_and_a_load_are_labelled(capsys):
    view = TerminalView(answers="hidden", label="4TK-G9P")
    view(ev.Dealt("m", (ev.Share("attic", 0, 10, 0.5),), (("shed", "small"),)))
    view(ev.LoadProgress("attic", 100))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("4TK-G9P") for line in lines)


def test_json_lines_say_room_event_and_facts(capsys):
    show = JsonLines("4TK-G9P")
    show(ev.RoomOnline("M", 2048))
    show(ev.Dealt("M", (ev.Share("attic", 0, 10, 0.5),), ()))
    show.say("Joined as shared.")
    show.close()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    share = {"name": "attic", "lo": 0, "hi": 10, "held_gb": 0.5}
    assert lines == [
        {"room": "4TK-G9P", "event": "room_online", "model": "M", "context_size": 2048},
        {"room": "4TK-G9P", "event": "dealt", "model": "M", "shares": [share], "left_out": []},
        {"room": "4TK-G9P", "event": "said", "text": "Joined as shared."},
    ]


def test_json_lines_tell_no_questions_and_no_answers(capsys):
    show = JsonLines("4TK-G9P")
    show(ev.AnswerStarted("ann", "my secret?", mine=False))
    show(ev.TokenShown("the secret", mine=False))
    show(ev.AnswerEnded("9 tokens", mine=False))
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("given", [["4TK-G9P", "ABC-DEF"], []], ids=["arguments", "environment"])
def test_rooms_come_as_arguments_or_from_the_environment(monkeypatch, given):
    taken = []

    async def record(options, rooms, *, as_json):
        taken.extend(rooms)

    monkeypatch.setattr(holding, "hold_layers", record)
    monkeypatch.setattr("poolhouse_node.cli.room_commands.run", asyncio.run)
    monkeypatch.setenv("POOLHOUSE_ROOM", "4TK-G9P ABC-DEF")
    app(["join", *given], standalone_mode=False)
    assert taken == ["4TK-G9P", "ABC-DEF"]


async def test_metrics_of_several_rooms_cannot_name_one(devices):
    options = replace(OPTIONS, metrics=MetricsOptions(port=0, names_room=True))
    with pytest.raises(CommandFailed, match="drop --metrics-room-label"):
        await hold_layers(options, ["4TK-G9P", "ABC-DEF"], as_json=False)
