"""Settings for associations from now on: what the person said, and a relay that is kept fresh."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from poolhouse_node.rtc.peer import RtcError
from poolhouse_node.rtc.relays import RelayCaller, Relays
from poolhouse_node.rtc.tasks import TaskSet
from poolhouse_node.rtc.turn import parse_relay_url
from poolhouse_node.rtc.turn_shim import TurnShims

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from poolhouse_node.rtc.ice import PathSettings
    from poolhouse_node.rtc.peer import Engine, IceSettings, TurnServer
    from poolhouse_node.rtc.relay_answer import RelayGrant

__all__ = ["PathKeeper", "choose_relays"]

_log = logging.getLogger(__name__)

_MOST_RELAYS: Final[dict[Engine, int]] = {"libdatachannel": 2, "aiortc": 1}
"""libdatachannel draws two of the relays it is given, aiortc takes the first."""
_TRANSPORTS: Final = ("udp", "tls", "tcp")
"""UDP is quickest; TLS gets through where it does not; plain TCP seldom through more."""


def choose_relays(relays: Sequence[TurnServer], engine: Engine) -> tuple[TurnServer, ...]:
    """The relays that an engine should try: one for each transport, the likeliest two.

    What no engine speaks (TLS over UDP) is left out.
    """
    by_transport: dict[str, TurnServer] = {}
    for relay in relays:
        try:
            by_transport.setdefault(parse_relay_url(relay.url).transport, relay)
        except RtcError as error:
            _log.info("relay.left_out: %s", error)
    found = (by_transport.get(transport) for transport in _TRANSPORTS)
    return tuple(relay for relay in found if relay is not None)[: _MOST_RELAYS[engine]]


class PathKeeper:
    """Owns what stands behind :class:`IceSettings`: shims, and the task that refreshes relays."""

    def __init__(
        self,
        wanted: PathSettings,
        engine: Engine,
        caller: RelayCaller,
        *,
        relays: Relays | None = None,
        shims: TurnShims | None = None,
    ) -> None:
        self._wanted = wanted
        self._engine: Engine = engine
        self._caller = caller
        self._asks = wanted.asks_at(caller.server)
        self._relays = relays or Relays()
        self._shims = shims or TurnShims(bind=wanted.bind)
        self._tasks = TaskSet()

    async def first(self) -> IceSettings:
        """The settings to begin with; a control plane may take a few seconds to lend a relay.

        Raises :class:`RtcError` when only relays may be used and there is none.
        """
        grant = await self._relays.grant(self._caller) if self._asks else None
        return await self._settings(grant)

    def keep_fresh(self, changed: Callable[[IceSettings], None]) -> None:
        """Tell ``changed`` the settings for new associations, whenever relays were lent anew.

        Open links keep their allocation (relay, section 3).
        """

        async def lent(grant: RelayGrant) -> None:
            try:
                changed(await self._settings(grant))
            except RtcError as error:  # the old ones stay, the next refresh may do
                _log.warning("relay.not_refreshed: %s", error)

        if self._asks:
            self._tasks.spawn(self._relays.keep_fresh(self._caller, lent), "relay-refresh")

    async def _settings(self, grant: RelayGrant | None) -> IceSettings:
        settings = self._wanted.with_grant([self._caller.server], grant)
        chosen = choose_relays(settings.turn, self._engine)
        if self._engine == "libdatachannel":  # aiortc speaks TCP and TLS itself
            chosen = tuple([await self._shims.local(relay) for relay in chosen])
        return replace(settings, turn=chosen)

    async def close(self) -> None:
        """End the refreshing and the shims, once no association needs them."""
        await self._tasks.cancel()
        await self._shims.close()
