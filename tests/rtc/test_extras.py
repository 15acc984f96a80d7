"""The private layer under libdatachannel: used exactly as tested, or not at all (pitfall 5)."""

from __future__ import annotations

import ctypes
import logging

import pytest

from poolhouse_node.rtc import libdatachannel_extras as extras_module
from poolhouse_node.rtc.libdatachannel_extras import TESTED_VERSION, Extras, load_extras
from poolhouse_node.rtc.peer import IceSettings, RtcError, make_peer

pytestmark = pytest.mark.webrtc


@pytest.fixture
def native():
    from aiolibdatachannel import _native

    load_extras.cache_clear()
    yield _native
    load_extras.cache_clear()


def test_every_symbol_of_the_pinned_version_is_there(native, caplog):
    assert isinstance(load_extras(native), Extras)
    assert load_extras(native) is load_extras(native), "settings are made once a process"
    assert caplog.records == []


def test_another_version_runs_without_extras_after_one_warning(native, caplog, monkeypatch):
    monkeypatch.setattr(extras_module, "version", lambda name: "2099.1.1")
    assert load_extras(native) is None
    assert load_extras(native) is None
    assert [r.levelno for r in caplog.records] == [logging.WARNING]
    assert TESTED_VERSION in caplog.text


def test_a_missing_symbol_is_named(native, caplog, monkeypatch):
    monkeypatch.setattr(extras_module, "_SYMBOLS", ("rtcSetSctpSettings", "rtcNoSuchThing"))
    assert load_extras(native) is None
    assert "rtcNoSuchThing" in caplog.text


def test_refused_settings_leave_the_rest_working(native, caplog, monkeypatch):
    monkeypatch.setattr(Extras, "shorten_retransmission", lambda self: False)
    assert isinstance(load_extras(native), Extras)
    assert "retransmission" in caplog.text


def test_an_association_sends_again_soon_and_for_fifteen_seconds():
    """Liveness, section 5; the library's own five tries would end after 3 s of silence."""
    handed = []

    class Library:
        def rtcSetSctpSettings(self, settings):
            handed.append(settings._obj)
            return 0

    assert Extras(Library()).shorten_retransmission()
    wait_ms, waited_ms = handed[0].min_retransmit_ms, 0
    assert wait_ms == 50
    for _ in range(handed[0].max_retransmit_attempts + 1):
        waited_ms += wait_ms
        wait_ms = min(2 * wait_ms, handed[0].max_retransmit_ms)
    assert 15_000 <= waited_ms <= 16_000
    assert handed[0].max_retransmit_ms <= 2000, "data flows again soon after the network does"


async def test_without_extras_an_association_shows_no_pair_and_takes_no_bind(native, monkeypatch):
    monkeypatch.setattr(extras_module, "version", lambda name: "2099.1.1")
    peer = make_peer("libdatachannel", IceSettings())
    peer.channel("x")
    await peer.offer()
    assert peer.pair() is None
    await peer.close()
    with pytest.raises(RtcError, match="local address"):
        make_peer("libdatachannel", IceSettings(bind="127.0.0.1"))


async def test_aiortc_keeps_to_no_range_of_ports():
    with pytest.raises(RtcError, match="range of ports"):
        make_peer("aiortc", IceSettings(port_range=(40000, 40010)))


async def test_libdatachannel_keeps_to_a_range_of_ports(native):
    peer = make_peer("libdatachannel", IceSettings(port_range=(42000, 42050)))
    peer.channel("x")
    lines = (await peer.offer()).splitlines()
    ports = [int(line.split()[5]) for line in lines if line.startswith("a=candidate:")]
    assert ports
    assert all(42000 <= port <= 42050 for port in ports)
    await peer.close()


def test_the_settings_have_the_size_that_the_library_reads():
    """Twelve ints; pointers, ints and flags as a C compiler lays them out."""
    assert ctypes.sizeof(extras_module._SctpSettings) == 12 * 4
    assert ctypes.sizeof(extras_module._Configuration) == 56
