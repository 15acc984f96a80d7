"""What a joined device knows of its room: who is here, who holds what (joining, 7; dealing, 11)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from poolhouse_node.room.roster import Member, Roster, clean_meta, clean_name, renamed
from poolhouse_node.room.shares import comes_before, read_layers

if TYPE_CHECKING:
    from poolhouse_node.wire.messages.joining import Roster as RosterMessage
    from poolhouse_node.wire.messages.loading import Layers

__all__ = ["KnownRoom"]


@dataclass(slots=True)
class KnownRoom:
    """As the host told it last; nothing of it is known before."""

    my_name: str
    """What this device is called here: its own name, or the one that the host gave it."""
    roster: Roster = field(default_factory=Roster)
    held: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Layers ``[lo, hi)`` by device name."""

    def take_roster(self, message: RosterMessage, my_id: str) -> None:
        """Who is here now, this device among them."""
        self.roster = Roster()
        for entry in message.members:
            name = clean_name(entry.name, entry.id)
            member = Member(entry.id, name, clean_meta(entry.meta, on_host=False), bool(entry.a))
            self.roster.members[entry.id] = member
        given = renamed(message.members, my_id, self.my_name, from_host=True)
        self.my_name = given or self.my_name

    def name_of(self, peer_id: str) -> str:
        """The name to show for an id, also for one that is not in the room."""
        return self.roster.name_of(peer_id)

    def take_layers(self, message: Layers) -> None:
        """Who holds which layers now; what is no range of layers counts as none."""
        read = {clean_name(name, ""): read_layers(text) for name, text in message.by.items()}
        self.held = {name: layers for name, layers in read.items() if layers}

    def deal_begins(self) -> None:
        """What was told of an earlier deal says nothing about this one."""
        self.held = {}

    def may_send_frames(self, peer_id: str, lo: int) -> bool:
        """May this device send frames to one whose layers begin at ``lo``?

        Who was sent out still knows the mesh key: only who is in the room counts.
        """
        sender = self.roster.members.get(peer_id)
        return sender is not None and comes_before(sender.name, lo, self.held)
