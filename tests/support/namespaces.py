"""Networks of a test's own: Linux network namespaces around a router that can lose packets.

Each namespace has one link, to the router, and is reached by its address from all others. Nothing
leads out: what runs inside reaches neither this machine nor the internet. Files are shared with
this machine as ever, Unix sockets among them.
Tests that use them carry the marker ``netns``.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.program import Program

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Namespace", "Networks", "networks"]

_NETNS = Path("/run/netns")


@dataclass(frozen=True, slots=True)
class Namespace:
    """One network with one address, as a device at home has it."""

    name: str
    address: str

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Be inside while open: sockets made and processes started by this thread belong there.

        Threads that it starts do so too. Sockets stay where they were made.
        """
        with Path("/proc/thread-self/ns/net").open() as outside:
            with (_NETNS / self.name).open() as inside:
                os.setns(inside.fileno(), os.CLONE_NEWNET)
            try:
                yield
            finally:
                os.setns(outside.fileno(), os.CLONE_NEWNET)

    def start(self, *arguments: str, env: dict[str, str] | None = None) -> Program:
        """``poolhouse ARGUMENTS`` inside. Kill it before the networks end."""
        with self.entered():
            return Program.start(*arguments, env=env)

    def sent_bytes(self) -> int:
        """What left it so far, packet headers included."""
        with self.entered():
            table = Path("/proc/thread-self/net/dev").read_text().splitlines()
        (line,) = [line for line in table if line.lstrip().startswith("eth0:")]
        return int(line.partition(":")[2].split()[8])

    def free_port(self) -> int:
        """A TCP port that is free inside, and that only this test could take."""
        with self.entered(), socket.socket() as probe:
            probe.bind((self.address, 0))
            return int(probe.getsockname()[1])


@dataclass(slots=True)
class Networks:
    """The namespaces of one test, by the names that it gave them."""

    _router: str
    _all: dict[str, Namespace] = field(default_factory=dict)
    _rules: dict[str, int] = field(default_factory=dict)
    _rules_made: int = 0

    def __getitem__(self, name: str) -> Namespace:
        return self._all[name]

    def cut(self, one: str, other: str) -> None:
        """From now on everything between these two is lost, both ways, and nobody is told."""
        self._lose(self._from_to(one, other))
        self._lose(self._from_to(other, one))

    def mend(self, one: str, other: str) -> None:
        """Undo :meth:`cut`."""
        self._pass(self._from_to(one, other))
        self._pass(self._from_to(other, one))

    def block_udp(self, name: str) -> None:
        """From now on no UDP leaves this namespace, as behind a strict firewall."""
        self._lose(f"from {self[name].address} ipproto udp")

    def allow_udp(self, name: str) -> None:
        """Undo :meth:`block_udp`."""
        self._pass(f"from {self[name].address} ipproto udp")

    def _from_to(self, source: str, target: str) -> str:
        return f"from {self[source].address} to {self[target].address}"

    def _lose(self, packets: str) -> None:
        """A blackhole loses what the router forwards; other kinds of rules would answer."""
        if packets not in self._rules:
            self._rules_made += 1
            self._rules[packets] = self._rules_made
            _ip(f"-netns {self._router} rule add pref {self._rules_made} {packets} blackhole")

    def _pass(self, packets: str) -> None:
        if (preference := self._rules.pop(packets, None)) is not None:
            _ip(f"-netns {self._router} rule del pref {preference}")

    def _connect(self, name: str, namespace: str) -> None:
        """A link of its own between a namespace and the router."""
        number = len(self._all) + 1
        here, there = f"10.203.{number}.2", f"10.203.{number}.1"
        device = f"to{number}"
        _ip(f"-netns {self._router} link add {device} type veth peer name eth0 netns {namespace}")
        _ip(f"-netns {self._router} address add {there}/24 dev {device}")
        _ip(f"-netns {self._router} link set {device} up")
        _ip(f"-netns {namespace} address add {here}/24 dev eth0")
        _ip(f"-netns {namespace} link set eth0 up")
        _ip(f"-netns {namespace} link set lo up")
        _ip(f"-netns {namespace} route add default via {there}")
        self._all[name] = Namespace(namespace, here)


@contextmanager
def networks(*names: str) -> Iterator[Networks]:
    """Namespaces that reach each other, until told otherwise; removed at the end.

    They are this test's own whatever else runs on the machine.
    """
    assert shutil.which("ip"), "these tests need ip (Debian: iproute2)"
    assert os.geteuid() == 0, "these tests make network namespaces: run them as root"
    prefix = f"poolhouse-{secrets.token_hex(4)}"
    with ExitStack() as made:
        router = _add_namespace(f"{prefix}-router", made)
        found = Networks(router)
        with Namespace(router, "").entered():
            Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        for name in names:
            found._connect(name, _add_namespace(f"{prefix}-{name}", made))
        yield found


def _add_namespace(name: str, made: ExitStack) -> str:
    _ip(f"netns add {name}")
    made.callback(_remove_namespace, name)
    return name


def _remove_namespace(name: str) -> None:
    with suppress(AssertionError):  # the others must go as well, and the test's own error counts
        _ip(f"netns delete {name}")


def _ip(command: str) -> None:
    done = subprocess.run(["ip", *command.split()], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {command}: {done.stderr.strip()}"
