"""Settings for associations: what the person said, and a relay that is kept fresh."""

from __future__ import annotations

import asyncio

import pytest

from poolhouse_node.rtc import open as open_module
from poolhouse_node.rtc.ice import PUBLIC_STUN, PathSettings
from poolhouse_node.rtc.open import open_network, parse_servers
from poolhouse_node.rtc.paths import PathKeeper, choose_relays
from poolhouse_node.rtc.peer import RtcError, TurnServer
from poolhouse_node.rtc.relay_answer import RelayGrant
from poolhouse_node.rtc.relays import RelayCaller, Relays
from poolhouse_node.rtc.turn_shim import TurnShim
from poolhouse_node.wire.servers import CLOUD
from tests.support.control import running_control
from tests.support.coturn import OLD_SECRET
from tests.support.recorder import Recorder, until

AWAY = parse_servers(["wss://room.example.org"])[0]
HERE = parse_servers(["127.0.0.1:8080"])[0]
UDP, TCP, TLS = "turn:r", "turn:r?transport=tcp", "turns:r:443"


def relay(url: str = UDP, user: str = "u") -> TurnServer:
    return TurnServer(url, user, "c")


LENT = RelayGrant(("stun:lent",), (relay(user="lent"),), 600)


def choice(urls, engine):
    return [each.url for each in choose_relays([relay(url) for url in urls], engine)]


@pytest.mark.parametrize(
    ("urls", "two"),
    [
        ([], []),
        ([UDP, TCP, TLS], [UDP, TLS]),
        ([TLS, TCP, UDP], [UDP, TLS]),
        ([TCP, TLS], [TLS, TCP]),
        ([TCP], [TCP]),
        ([UDP, "turn:second", TCP], [UDP, TCP]),
        (["turns:r?transport=udp", TCP], [TCP]),
        (["turn:r:0", "turn:r:99999"], []),
    ],
)
def test_an_engine_gets_the_likeliest_relays_one_for_each_transport(urls, two):
    assert choice(urls, "libdatachannel") == two
    assert choice(urls, "aiortc") == two[:1]


def test_a_relay_of_ones_own_wins_and_then_nobody_is_asked():
    own = PathSettings(turn=(relay(user="own"),))
    assert not own.asks_at(AWAY)
    assert own.with_grant([AWAY], LENT).turn == (relay(user="own"),)
    assert PathSettings().with_grant([AWAY], LENT).turn == (relay(user="lent"),)
    assert PathSettings().with_grant([AWAY], None).turn == ()


def test_who_is_asked():
    assert PathSettings().asks_at(AWAY)
    assert not PathSettings().asks_at(HERE)
    assert not PathSettings().asks_at(CLOUD)
    assert not PathSettings().asks_at(parse_servers([f"wss://{CLOUD.host}:443"])[0])


@pytest.mark.parametrize(
    ("said", "used"),
    [
        (None, (*PUBLIC_STUN, "stun:lent")),
        (("stun:mine",), ("stun:mine", "stun:lent")),
        ((), ()),
    ],
)
def test_stun_servers(said, used):
    assert PathSettings(stun=said).with_grant([AWAY], LENT).stun == used


def test_a_stun_server_that_was_named_is_used_on_this_machine_too():
    assert PathSettings().with_grant([HERE], None).stun == ()
    assert PathSettings(stun=("stun:[::1]",)).with_grant([HERE], None).stun == ("stun:[::1]",)


def test_relay_only_without_a_relay_is_refused_instead_of_coming_out():
    with pytest.raises(RtcError, match="There is no relay to use"):
        PathSettings(relay_only=True).with_grant([AWAY], None)
    assert PathSettings(relay_only=True).with_grant([AWAY], LENT).relay_only


def lender(*answers):
    left = list(answers)

    async def ask(caller):
        return left.pop(0)

    return Relays(ask)


CALLER = RelayCaller(AWAY, "me", "token")


@pytest.mark.parametrize("engine", ["libdatachannel", "aiortc"])
async def test_streams_go_through_a_local_port_for_the_engine_that_needs_it(engine):
    wanted = PathSettings(turn=(relay(TCP),), port_range=(5000, 5010), bind="127.0.0.1")
    keeper = PathKeeper(wanted, engine, CALLER, relays=lender())
    try:
        ice = await keeper.first()
        assert (ice.port_range, ice.bind) == ((5000, 5010), "127.0.0.1")
        assert ice.turn[0].url.startswith("turn:127.0.0.1:") is (engine == "libdatachannel")
        assert (ice.turn[0].username, ice.turn[0].credential) == ("u", "c")
    finally:
        await keeper.close()


async def test_new_credentials_are_for_new_associations_and_go_through_the_same_port():
    fresh = RelayGrant((), (relay(TLS, "second"),), 600)
    relays = lender(RelayGrant((), (relay(TLS, "first"),), 600), fresh)
    keeper = PathKeeper(PathSettings(), "libdatachannel", CALLER, relays=relays)
    told: asyncio.Future = asyncio.get_running_loop().create_future()

    async def at_once(caller, changed):
        await changed(await relays._renew(caller))

    relays.keep_fresh = at_once
    try:
        before = await keeper.first()
        keeper.keep_fresh(told.set_result)
        after = await told
        assert before.turn[0].username == "first", "settings that are in use do not change"
        assert after.turn[0].username == "second"
        assert before.turn[0].url == after.turn[0].url
    finally:
        await keeper.close()


async def test_a_refresh_that_cannot_be_used_keeps_the_old_settings(monkeypatch, caplog):
    relays = lender(LENT, RelayGrant((), (relay(TLS),), 600))
    keeper = PathKeeper(PathSettings(), "libdatachannel", CALLER, relays=relays)
    refreshed = asyncio.Event()

    async def at_once(caller, changed):
        await changed(await relays._renew(caller))
        refreshed.set()

    async def no_port(*_, **__):
        raise RtcError("No local port.")

    relays.keep_fresh = at_once
    monkeypatch.setattr(TurnShim, "open", no_port)
    told = []
    try:
        await keeper.first()
        keeper.keep_fresh(told.append)
        await refreshed.wait()
        assert told == []
        assert "relay.not_refreshed" in caplog.text
    finally:
        await keeper.close()


async def test_the_refresh_ends_with_the_network():
    asking = asyncio.Event()
    relays = lender(LENT)

    async def for_ever(caller, changed):
        try:
            await asyncio.Event().wait()
        finally:
            asking.set()

    relays.keep_fresh = for_ever
    keeper = PathKeeper(PathSettings(), "aiortc", CALLER, relays=relays)
    await keeper.first()
    keeper.keep_fresh(lambda ice: None)
    await asyncio.sleep(0)
    await keeper.close()
    assert asking.is_set()


async def test_a_network_that_may_not_open_leaves_no_registration():
    async with running_control() as control:
        with pytest.raises(RtcError, match="There is no relay"):
            await open_network(
                [control.signal_url], "pooled-room-A", paths=PathSettings(relay_only=True)
            )
        network = await open_network([control.signal_url], "pooled-room-A")
        await network.close()


class Signaling:
    """As much of a signaling client as early messages need."""

    def __init__(self, *, connected: bool) -> None:
        self.connected = connected
        self.on_message = self.on_state = None


@pytest.mark.parametrize("connected", [True, False])
async def test_early_messages_are_few_and_in_order_and_a_lost_server_is_told(connected):
    signaling = Signaling(connected=connected)
    early = open_module._EarlyMessages(signaling)
    for number in range(300):
        signaling.on_message(number)
    messages, states = [], []
    signaling.on_message, signaling.on_state = messages.append, states.append
    early.deliver_soon()
    assert messages == [], "the caller listens first"
    await asyncio.sleep(0)
    assert messages == list(range(300 - 256, 300))
    assert states == ([] if connected else [False])


@pytest.mark.webrtc
async def test_a_dial_that_comes_while_a_relay_is_asked_for_is_answered(monkeypatch):
    """The host is registered before it has its relay; whoever knows the code may be quick."""
    monkeypatch.setattr(PathSettings, "asks_at", lambda self, server: True)
    asked, answer, early = asyncio.Event(), asyncio.Event(), []
    real = open_module._EarlyMessages

    def remembered(signaling):
        early.append(real(signaling))
        return early[-1]

    monkeypatch.setattr(open_module, "_EarlyMessages", remembered)

    async def slow(caller):
        asked.set()
        await answer.wait()

    async with running_control({"TURN_SECRET": OLD_SECRET}) as control:

        async def host():
            events = Recorder()
            network = await open_network([control.signal_url], "pooled-room-A", relays=Relays(slow))
            network.listen(events)
            return network, events

        opening = asyncio.create_task(host())
        await asked.wait()
        guest = await open_network([control.signal_url], relays=lender(None))
        guest.listen(Recorder())
        dialing = asyncio.create_task(guest.dial("pooled-room-A", timeout_s=15))
        await until(lambda: early[0]._messages)
        answer.set()
        network, events = await opening
        await dialing
        await until(lambda: events.opened)
        await guest.close()
        await network.close()
