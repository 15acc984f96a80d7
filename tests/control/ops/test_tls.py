"""The certificate of the public port."""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from typing import TYPE_CHECKING

import pytest

from poolhouse_control.errors import SettingsError
from poolhouse_control.ops.logs import make_logger
from poolhouse_control.ops.tls import Certificate
from tests.support.control import running_control
from tests.support.coturn import Certificate as Files
from tests.support.peerjs_socket import peer_socket

if TYPE_CHECKING:
    from pathlib import Path


def trusting(files: Files) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(files.cert))


async def shown_by(host: str, port: int) -> bytes:
    """The certificate a server shows to who asks now."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection(host, port, ssl=context)
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    assert isinstance(shown, bytes)
    return shown


async def test_signaling_over_tls(tmp_path: Path) -> None:
    files = Files.make(tmp_path)
    async with running_control(tls_cert=str(files.cert), tls_key=str(files.key)) as control:
        assert control.signal_url.startswith("https://127.0.0.1:")
        assert control.admin_url.startswith("http://")
        url = control.signal_url.replace("https", "wss") + "peerjs"
        async with peer_socket(url, "A", ssl=trusting(files)) as peer:
            assert await peer.hear() == {"type": "OPEN"}
            await peer.say({"type": "OFFER", "dst": "A", "payload": "x" * 100_000})
            assert len((await peer.hear())["payload"]) == 100_000


async def test_a_new_certificate_is_shown_to_new_connections(tmp_path: Path) -> None:
    files = Files.make(tmp_path)
    certificate = Certificate(str(files.cert), str(files.key))
    server = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=certificate.context
    )
    port = server.sockets[0].getsockname()[1]
    async with server:
        first = await shown_by("127.0.0.1", port)
        assert not certificate.refresh()
        assert await shown_by("127.0.0.1", port) == first
        Files.make(tmp_path)
        assert certificate.refresh()
        assert await shown_by("127.0.0.1", port) != first


async def test_a_pair_that_does_not_match_leaves_the_old_one_in_use(tmp_path: Path) -> None:
    files = Files.make(tmp_path)
    certificate = Certificate(str(files.cert), str(files.key))
    other = tmp_path / "other"
    other.mkdir()
    os.replace(Files.make(other).key, files.key)
    with pytest.raises(SettingsError, match="cannot be used"):
        certificate.refresh()
    server = await asyncio.start_server(
        lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=certificate.context
    )
    async with server:
        assert await shown_by("127.0.0.1", server.sockets[0].getsockname()[1])


async def test_changes_are_found_and_complaints_are_made_once(tmp_path: Path) -> None:
    import io

    files, out = Files.make(tmp_path), io.StringIO()
    certificate = Certificate(str(files.cert), str(files.key))
    async with certificate.watching(make_logger(stream=out), every_s=0.005):
        files.key.write_text("half written")
        while "certificate.unusable" not in out.getvalue():
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
        assert out.getvalue().count("certificate.unusable") == 1
        Files.make(tmp_path)
        while "certificate.reloaded" not in out.getvalue():
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("missing", ["cert", "key"])
def test_a_missing_file_is_one_sentence(tmp_path: Path, missing: str) -> None:
    files = Files.make(tmp_path)
    (files.cert if missing == "cert" else files.key).unlink()
    with pytest.raises(SettingsError, match=r"cannot be used: No such file or directory\.$"):
        Certificate(str(files.cert), str(files.key))


def test_old_protocols_are_refused(tmp_path: Path) -> None:
    files = Files.make(tmp_path)
    context = Certificate(str(files.cert), str(files.key)).context
    assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
