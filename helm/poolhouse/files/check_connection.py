"""Registers at signaling by WebSocket, then asks for relay credentials; run by `helm test`."""

import asyncio
import json
import ssl
import sys
import uuid

import httpx
from websockets.asyncio.client import connect

DEADLINE_S = 20
ANSWERS = {
    200: "handed out",
    204: "none, no relay is configured",
    401: "for those who show a token",
}


def unverified() -> ssl.SSLContext:
    """Inside the cluster the Service's name is in no certificate."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def register(url: str, path: str, key: str) -> None:
    """Open a socket as a device does."""
    words = {"key": key, "id": f"helm-test-{uuid.uuid4()}", "token": uuid.uuid4().hex}
    address = f"{url.replace('http', 'ws', 1)}{path.rstrip('/')}/peerjs?{httpx.QueryParams(words)}"
    tls = unverified() if address.startswith("wss") else None
    async with connect(address, ssl=tls) as socket:
        first = json.loads(await socket.recv())
    if first.get("type") != "OPEN":
        raise SystemExit(f"Signaling answers {first.get('type')} in place of OPEN.")


async def ask_for_a_relay(url: str) -> str:
    """What `/api/turn` says of credentials to this address's own origin."""
    async with httpx.AsyncClient(verify=False, timeout=DEADLINE_S) as client:
        answer = await client.post(f"{url}/api/turn", headers={"origin": url})
    if answer.status_code not in ANSWERS:
        raise SystemExit(f"/api/turn answers {answer.status_code}; the log of control says why.")
    return ANSWERS[answer.status_code]


async def main(url: str, path: str = "/", key: str = "peerjs") -> None:
    """Both, within the deadline."""
    async with asyncio.timeout(DEADLINE_S):
        await register(url, path, key)
        credentials = await ask_for_a_relay(url)
    print(f"Signaling answers; relay credentials: {credentials}.")


asyncio.run(main(*sys.argv[1:]))
