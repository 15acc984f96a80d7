"""``poolhouse join``: one process that holds layers in a room, or in several at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from poolhouse_node.cli.failures import CommandFailed, known_failures
from poolhouse_node.cli.join import while_inside
from poolhouse_node.cli.lending import SharedPledge
from poolhouse_node.cli.loading import Shelf
from poolhouse_node.cli.machine import default_pledge_gb, device_name
from poolhouse_node.cli.measuring import measuring
from poolhouse_node.cli.rooms import make_joined, read_invite
from poolhouse_node.cli.running import say
from poolhouse_node.cli.screen import JsonLines
from poolhouse_node.cli.view import TerminalView
from poolhouse_node.device.compute import ComputeThread
from poolhouse_node.device.events import LoadWaits
from poolhouse_node.device.joined import JoinFailed, JoinRefused
from poolhouse_node.device.turns import Turns
from poolhouse_node.room.returning import next_knock_s
from poolhouse_node.rtc.signaling import SignalingError
from poolhouse_node.wire.codes import format_code

if TYPE_CHECKING:
    from collections.abc import Sequence

    from poolhouse_node.cli.join import JoinOptions
    from poolhouse_node.cli.loading import EngineLoader
    from poolhouse_node.cli.measuring import Measuring
    from poolhouse_node.cli.screen import Screen
    from poolhouse_node.device.events import Notify
    from poolhouse_node.device.joined import JoinedDevice
    from poolhouse_node.generate.ports import Compute
    from poolhouse_node.wire.codes import Invite

__all__ = ["hold_layers"]

log = logging.getLogger(__name__)


async def hold_layers(options: JoinOptions, rooms: Sequence[str], *, as_json: bool) -> int:
    """Hold layers until every room is over or the person ends it; the exit status.

    ``options`` are those of all ``rooms``, which are codes or invite links. Raises
    :class:`CommandFailed`; with one room also why it could not be joined.
    """
    invites = _invites(rooms)
    has_several = len(invites) > 1
    if has_several and options.metrics.names_room:
        raise CommandFailed("Metrics of several rooms cannot name one: drop --metrics-room-label.")
    async with measuring(options.metrics, say) as measured:
        stays = _stays(options, rooms, invites, measured, as_json=as_json)
        if not has_several:
            return await stays[0].hold()
        return max(await asyncio.gather(*(stay.hold_beside_others() for stay in stays)))


def _stays(
    options: JoinOptions,
    rooms: Sequence[str],
    invites: Sequence[Invite],
    measured: Measuring,
    *,
    as_json: bool,
) -> list[_Stay]:
    """One for each room, and what they share."""
    loader = options.loader(measured)
    loader.warm_up()
    pledge = SharedPledge(options.pledge_gb or default_pledge_gb(device=options.device))
    turns, shelf = Turns(ComputeThread()), Shelf()
    has_several = len(invites) > 1
    return [
        _Stay(
            replace(options, room=text),
            invite,
            device_name(options.name),
            _screen(invite, as_json=as_json, has_several=has_several),
            pledge,
            loader,
            shelf,
            turns.for_room(),
            measured,
        )
        for text, invite in zip(rooms, invites, strict=True)
    ]


def _invites(rooms: Sequence[str]) -> list[Invite]:
    """Each room once: passes and notes are kept by its code. Raises :class:`CommandFailed`."""
    invites = [read_invite(text) for text in rooms]
    codes = [invite.code for invite in invites]
    for code in codes:
        if codes.count(code) > 1:
            raise CommandFailed(f"The room {format_code(code)} is given twice; give each once.")
    return invites


def _screen(invite: Invite, *, as_json: bool, has_several: bool) -> Screen:
    code = format_code(invite.code)
    if as_json:
        return JsonLines(code)
    return TerminalView(answers="hidden", label=code if has_several else "")


@dataclass(frozen=True, slots=True)
class _Stay:
    """This device in one of its rooms."""

    options: JoinOptions
    invite: Invite
    name: str
    screen: Screen
    pledge: SharedPledge
    loader: EngineLoader
    """The process's; each room has one of its own."""
    shelf: Shelf
    compute: Compute
    measured: Measuring

    async def hold_beside_others(self) -> int:
        """Whatever ends it, even a fault of ours, the other rooms go on."""
        try:
            return await self.hold()
        except Exception as error:
            if isinstance(error, known_failures()):
                self.screen.say(str(error))
            else:
                self.screen.say("A fault in this program ended this room.")
                log.exception("room.failed")
            return 1

    async def hold(self) -> int:
        """Join. A device that was in the room before knocks for a minute, as if it had only lost
        its link: its host, or the signaling server, may be on the way back as well (liveness, 10).
        """
        loop = asyncio.get_running_loop()
        started_at, said = loop.time(), False
        try:
            while True:
                knocked_at = loop.time()
                try:
                    return await self._join_once()
                except (JoinFailed, SignalingError) as error:
                    wait_s = next_knock_s(started_at, knocked_at, loop.time())
                    if isinstance(error, JoinRefused) or wait_s is None or not self._has_pass():
                        raise
                    if not said:
                        self.screen.say(
                            f"{error} This device was in that room before; trying for a minute …"
                        )
                        said = True
                    await asyncio.sleep(wait_s)
        finally:
            self.screen.close()

    def _has_pass(self) -> bool:
        secrets = self.options.secrets(self.invite, self.name, self.screen.say)
        return bool(secrets.come_back_pass)

    async def _join_once(self) -> int:
        watch, code = self.measured.room(self.screen), self.invite.code
        async with contextlib.AsyncExitStack() as stack:
            with watch.trying():
                device = await stack.enter_async_context(await self._device(watch))
                stack.enter_context(self.pledge.telling(code, device.lend))
                stack.enter_context(watch.joining(device, code))
                await device.join()
            self.screen.say(f"Joined as {device.name}.")
            return await while_inside(device)

    async def _device(self, notify: Notify) -> JoinedDevice:
        budget = self.pledge.room(self.invite.code)
        loader = self.loader.for_room(self.shelf, budget, lambda: notify(LoadWaits()))
        return await make_joined(
            self.options.place(self.invite),
            self.invite.code,
            notify,
            name=self.name,
            pledge_gb=self.pledge.offer_gb(self.invite.code),
            loader=self.measured.loader(loader),
            held=self.options.secrets(self.invite, self.name, self.screen.say),
            trust_unverified=self.options.trust_unverified,
            compute=self.compute,
            notebook=self.options.notebook(self.invite, self.name),
        )
