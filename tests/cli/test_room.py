"""What the person who hosts says and is told, without a room."""

from dataclasses import dataclass, field

import pytest

from poolhouse_node.cli.room import HostCommands
from poolhouse_node.device.doorman import SeveralWait, Waiting

OTTER = Waiting("a", "otter", "computer, 1 GB", "123 456")
DOUBLE = Waiting("b", "otter", "computer, 1 GB", "654 321")


@dataclass
class Door:
    """A lobby that decides by name as the real one does."""

    lobby: list[Waiting] = field(default_factory=list)

    def waiting(self):
        return self.lobby

    def allow(self, who):
        found = [each for each in self.lobby if each.name == who]
        if len(found) > 1:
            raise SeveralWait(who, found)
        return found[0] if found else None


@dataclass
class FakeHost:
    doorman: Door


def commands(*lobby: Waiting) -> HostCommands:
    return HostCommands(FakeHost(Door(list(lobby))), lambda: "link")


@pytest.mark.parametrize("line", ["/allow otter", "/allow", "/a"])
def test_who_was_let_in_is_shown_with_its_digits(line):
    assert commands(OTTER).typed(line) == "Done: otter, digits 123 456."


def test_a_name_of_several_is_answered_with_their_digits():
    answer = commands(OTTER, DOUBLE).handle({"command": "allow", "name": "otter"})
    assert "123 456, 654 321" in answer["error"]


def test_whoever_is_not_named_is_listed_with_digits():
    assert "otter (123 456), otter (654 321)" in commands(OTTER, DOUBLE).typed("/a")


def test_nobody_waits():
    assert "Nobody called 'otter' is waiting." in commands().typed("/allow otter")
