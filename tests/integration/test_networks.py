"""The networks that other tests are made in do what those tests rely on."""

import socket
from pathlib import Path

import pytest

from tests.support.namespaces import Namespace, networks

pytestmark = pytest.mark.netns

NAMES = ("attic", "cellar", "yard")


def listener(namespace: Namespace, kind: socket.SocketKind) -> socket.socket:
    with namespace.entered():
        opened = socket.socket(type=kind)
    opened.bind((namespace.address, 0))
    if kind is socket.SOCK_STREAM:
        opened.listen()
    opened.settimeout(5)
    return opened


def arrives(source: Namespace, target: Namespace, *, within_s: float = 5.0) -> bool:
    """Does a datagram come through? Fails when the network says a word about it."""
    with listener(target, socket.SOCK_DGRAM) as inbox, listener(source, socket.SOCK_DGRAM) as out:
        out.connect(inbox.getsockname())
        inbox.settimeout(within_s)
        out.send(b"first")
        try:
            assert inbox.recv(100) == b"first"
        except TimeoutError:
            out.send(b"raises what the network answered to the one before")
            return False
        return True


def connects(source: Namespace, target: Namespace, *, within_s: float = 5.0) -> bool:
    with listener(target, socket.SOCK_STREAM) as door, source.entered(), socket.socket() as out:
        out.settimeout(within_s)
        try:
            out.connect(door.getsockname())
        except TimeoutError:
            return False
        return True


def test_a_cut_loses_everything_between_two_both_ways_and_nothing_else():
    with networks(*NAMES) as net:
        attic, cellar, yard = (net[name] for name in NAMES)
        assert arrives(attic, cellar)
        net.cut("attic", "cellar")
        net.cut("cellar", "attic")  # twice is once
        assert not arrives(attic, cellar, within_s=0.2)
        assert not arrives(cellar, attic, within_s=0.2)
        assert not connects(attic, cellar, within_s=0.2)
        assert all(arrives(one, yard) and arrives(yard, one) for one in (attic, cellar))
        net.mend("attic", "cellar")
        assert arrives(attic, cellar)
        assert arrives(cellar, attic)


def test_a_connection_that_stands_goes_on_after_the_cut_is_mended():
    with (
        networks("attic", "cellar") as net,
        listener(net["cellar"], socket.SOCK_STREAM) as door,
        net["attic"].entered(),
        socket.create_connection(door.getsockname(), timeout=5) as out,
        door.accept()[0] as inside,
    ):
        net.cut("attic", "cellar")
        out.sendall(b"late")
        inside.settimeout(0.2)
        with pytest.raises(TimeoutError):
            inside.recv(10)
        net.mend("attic", "cellar")
        inside.settimeout(10)
        assert inside.recv(10) == b"late"


def test_where_udp_is_blocked_tcp_still_gets_out():
    with networks("office", "yard") as net:
        net.block_udp("office")
        assert not arrives(net["office"], net["yard"], within_s=0.2)
        assert connects(net["office"], net["yard"])
        net.allow_udp("office")
        assert arrives(net["office"], net["yard"])


def test_programs_run_inside_and_reach_nothing_outside():
    with networks("attic") as net:
        program = net["attic"].start("--version")
        assert program.end() == 0
        with net["attic"].entered():
            devices = {name for _, name in socket.if_nameindex()}
            assert devices == {"lo", "eth0"}
            with pytest.raises(OSError, match=r"(?i)unreachable|timed out"):
                socket.create_connection(("192.0.2.1", 9), timeout=0.2)


def made_by_a_test_that_fails(names: list[str]) -> None:
    with networks(*NAMES) as net:
        names += [net[name].name for name in NAMES]
        raise ZeroDivisionError


def test_they_are_gone_afterwards_also_when_the_test_failed():
    names: list[str] = []
    with pytest.raises(ZeroDivisionError):
        made_by_a_test_that_fails(names)
    assert names
    assert not set(names) & {file.name for file in Path("/run/netns").iterdir()}
