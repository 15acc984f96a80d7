"""Gate and passes on a disk that takes nothing."""

import errno
import os
import re

import pytest

from poolhouse_node.cli.join import JoinOptions
from poolhouse_node.cli.room import HostCommands
from poolhouse_node.cli.saving import SavedIfPossible
from poolhouse_node.wire.codes import Invite
from tests.support.kept_room import CODE


def full_disk(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_is_said_once_and_stops_nothing():
    said, kept = [], []
    save = SavedIfPossible(full_disk, "It is not kept", said.append)
    save(1)
    save(2)
    save.save = kept.append
    save(3)
    assert said == ["It is not kept ([Errno 28] No space left on device)."]
    assert kept == [3]


def test_a_device_keeps_in_memory_the_pass_that_its_disk_does_not_take(tmp_path):
    (tmp_path / "rooms").write_text("no folder")
    said = []
    options = JoinOptions(
        CODE, None, "libdatachannel", environment={"POOLHOUSE_STATE": str(tmp_path)}
    )
    secrets = options.secrets(Invite(CODE), "otter", said.append)
    secrets.changed("p" * 22)
    secrets.changed("q" * 22)
    assert len(said) == 1
    assert "pass" in said[0]


class FullHost:
    """A host whose every act ends at the disk."""

    def __getattr__(self, name: str):
        return full_disk


@pytest.mark.parametrize("line", ["/key", "/kick otter", "/status"])
def test_a_command_that_fails_at_the_disk_is_answered_with_a_sentence(line):
    commands = HostCommands(FullHost(), lambda: "link")
    command, _, name = line[1:].partition(" ")
    answer = commands.handle({"command": command, "name": name})
    assert re.search("No space left on device", answer["error"])
    assert "No space left on device" in commands.typed(line)
