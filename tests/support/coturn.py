"""A private coturn, on loopback unless told otherwise, with a certificate of its own."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ipaddress
import shutil
import socket
import ssl
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from poolhouse_control.relay.coturn import render
from poolhouse_control.relay.coturn_settings import CoturnSettings
from poolhouse_control.relay.probe import probe

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

__all__ = ["NEW_SECRET", "OLD_SECRET", "RELAY_ADDRESS", "Certificate", "Coturn", "coturn"]

LOOPBACK = "127.0.0.1"
RELAY_ADDRESS = "127.0.0.5"
"""Relayed traffic comes from here; every other loopback address stays denied."""
OLD_SECRET = "0123456789abcdef" * 2
NEW_SECRET = "fedcba9876543210" * 2
REALM = "turn.test"


@dataclass(frozen=True, slots=True)
class Certificate:
    """Files of a certificate for one address and one host that signs itself."""

    cert: Path
    key: Path

    @classmethod
    def make(cls, folder: Path, address: str = LOOPBACK, host: str = "localhost") -> Certificate:
        """Write one into a folder."""
        private = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a relay of a test")])
        now = datetime.datetime.now(datetime.UTC)
        names = [x509.IPAddress(ipaddress.ip_address(address)), x509.DNSName(host)]
        signed = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(private.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectAlternativeName(names), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(private, hashes.SHA256())
        )
        cert, key = folder / "cert.pem", folder / "key.pem"
        cert.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        key.write_bytes(
            private.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return cls(cert, key)

    def trusted(self) -> ssl.SSLContext:
        """A context that trusts it and nothing else."""
        return ssl.create_default_context(cafile=str(self.cert))


@dataclass(frozen=True, slots=True)
class Coturn:
    """A relay that answers now."""

    port: int
    tls_port: int
    certificate: Certificate
    log: bytearray
    address: str = LOOPBACK

    @property
    def urls(self) -> tuple[str, ...]:
        """Its addresses over UDP, TCP and TLS."""
        return (
            f"turn:{self.address}:{self.port}?transport=udp",
            f"turn:{self.address}:{self.port}?transport=tcp",
            f"turns:{self.address}:{self.tls_port}?transport=tcp",
        )


@asynccontextmanager
async def coturn(
    folder: Path,
    *,
    address: str = LOOPBACK,
    relay_address: str = RELAY_ADDRESS,
    secrets: Sequence[str] = (OLD_SECRET,),
    ipv6: bool = True,
    leave_out: Sequence[str] = (),
    more: Sequence[str] = (),
    own_address_allowed: bool = True,
    secrets_in: str = "static",
    redis_url: str = "",
    **settings: Any,
) -> AsyncIterator[Coturn]:
    """Run coturn with a rendered file while open.

    Relayed traffic must cross loopback or a private network here, which a file for production
    forbids; so two lines are added that open exactly one address. ``leave_out`` drops lines, to
    show what they are for; ``more`` adds lines that no rendered file has.
    """
    program = shutil.which("turnserver")
    assert program is not None, "the tests need turnserver (Debian: coturn)"
    certificate = Certificate.make(folder, address)
    port, tls_port = _free_port(address), _free_port(address)
    chosen = {
        "realm": REALM,
        "listening_ips": address,
        "relay_ips": [relay_address, "::1"] if ipv6 else [relay_address],
        "port": port,
        "tls_port": tls_port,
        "tls_cert": certificate.cert,
        "tls_key": certificate.key,
        "secrets": secrets_in,
        "userdb": folder / "turndb",
        "pidfile": folder / "pid",
        "log": "stdout",
        "verbose": True,
        "run_as": "",
        "extra": "relay-threads=1",
    }
    environ = {"POOLHOUSE_COTURN_REDIS_URL": redis_url}
    loaded = CoturnSettings.load(environ, **(chosen | settings))
    text = render(loaded, secrets=secrets, labels=True)
    lines = [line for line in text.splitlines() if line not in leave_out]
    lines += ["allow-loopback-peers", *more]
    if own_address_allowed:
        lines.append(f"allowed-peer-ip={relay_address}")
    file = folder / "turnserver.conf"
    file.write_text("\n".join([*lines, ""]))
    process = await asyncio.create_subprocess_exec(
        program,
        *("-c", str(file), "--log-file", "stdout"),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    log = bytearray()
    reader = asyncio.create_task(_read(process, log))
    try:
        async with asyncio.timeout(10):
            await _listening(address, port, tls_port)
        assert b"Bad configuration format" not in log, log.decode()
        yield Coturn(port, tls_port, certificate, log, address)
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        reader.cancel()
        await asyncio.wait({reader})


async def _read(process: asyncio.subprocess.Process, log: bytearray) -> None:
    assert process.stdout is not None
    async for line in process.stdout:
        log += line


async def _listening(address: str, *ports: int) -> None:
    for port in ports:
        while True:
            try:
                _, writer = await asyncio.open_connection(address, port)
            except OSError:
                await asyncio.sleep(0.02)
                continue
            writer.close()
            await writer.wait_closed()
            break
    while not await probe(address, ports[0]):  # UDP is opened by another thread
        await asyncio.sleep(0.02)


def _free_port(address: str) -> int:
    """A port that is free for UDP and TCP a moment before coturn takes it: it has no port 0."""
    while True:
        with (
            socket.socket(type=socket.SOCK_STREAM) as tcp,
            socket.socket(type=socket.SOCK_DGRAM) as udp,
        ):
            tcp.bind((address, 0))
            port = tcp.getsockname()[1]
            try:
                udp.bind((address, port))
            except OSError:
                continue
            return port
