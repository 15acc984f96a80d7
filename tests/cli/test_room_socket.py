"""The socket between a running host and another terminal, also where the folder is no good."""

import asyncio
import os

import pytest

from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.cli.room_socket import call_host, serve_commands
from poolhouse_node.cli.state import RoomState
from tests.support.kept_room import CODE


def state_in(folder) -> RoomState:
    return RoomState.of(CODE, {"POOLHOUSE_STATE": str(folder)})


def answer(request):
    return {"heard": request["command"]}


async def test_a_command_is_answered(tmp_path):
    state, said = state_in(tmp_path), []
    async with serve_commands(state, answer, said.append):
        assert state.socket.stat().st_mode & 0o777 == 0o600
        assert await call_host(state, {"command": "status"}) == {"heard": "status"}
    assert not state.socket.exists()
    assert said == []


@pytest.mark.parametrize("length", [60, 90, 150, 400])
async def test_a_long_path_is_no_hindrance(tmp_path, length):
    """The address of a socket takes about 100 bytes; a path may be longer."""
    folder = tmp_path
    while len(str(folder)) < length:
        folder /= "x" * 50
    folder.mkdir(parents=True, exist_ok=True)
    state, said = state_in(folder), []
    descriptors = len(os.listdir("/proc/self/fd"))
    async with serve_commands(state, answer, said.append):
        assert state.socket.is_socket()
        assert await call_host(state, {"command": "kick"}) == {"heard": "kick"}
        with pytest.raises(CommandFailed, match="runs on this machine already"):
            async with serve_commands(state, answer, said.append):
                pass
    await asyncio.sleep(0)
    assert not state.socket.exists()
    assert said == []
    assert len(os.listdir("/proc/self/fd")) <= descriptors


async def test_where_no_socket_can_be_the_room_goes_on_without(tmp_path):
    state, said = state_in(tmp_path), []
    (state.make_folder() / "host.sock").mkdir()
    async with serve_commands(state, answer, said.append):
        with pytest.raises(CommandFailed, match="No host of the room"):
            await call_host(state, {"command": "status"})
    assert len(said) == 1
    assert "poolhouse room" in said[0]
    assert state.socket.is_dir()


async def test_a_failure_of_the_room_itself_is_not_taken_for_one_of_the_socket(tmp_path):
    async def fail():
        async with serve_commands(state_in(tmp_path), answer, print):
            raise OSError("of the room")

    with pytest.raises(OSError, match="of the room"):
        await fail()
