"""Post between replicas: one channel each, and a probe that the own one still delivers.

What comes while a letter is on its way travels together in the next one: under load one command
carries many messages, and their order holds. Letters of posted messages keep a pace; whoever
``send``s waits for the answer, and does not wait for that.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import msgspec
from redis.exceptions import RedisError

from poolhouse_control.errors import StoreAway
from poolhouse_control.signaling.presence import Parcel
from poolhouse_control.signaling.tally import RelayKind

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Iterator

    from structlog.typing import FilteringBoundLogger

    from poolhouse_control.signaling.redis_store import RedisStore, Subscription
    from poolhouse_control.signaling.store_times import StoreTimes

__all__ = ["Item", "Kick", "Mail", "Probe", "Sent"]

_MAX_PAYLOAD_BYTES: Final = 1024 * 1024
_FAREWELL_S: Final = 1.0
_PACE_S: Final = 0.006
"""Between letters, in seconds. Waking processes four times is most of what a letter costs, and
a few milliseconds are nothing to devices that are about to look for a path to each other."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0


class Sent(msgspec.Struct, frozen=True, array_like=True, tag="s"):
    """A parcel."""

    kind: RelayKind
    src: str
    dst: str
    text: str
    hop: int = 0

    @classmethod
    def of(cls, parcel: Parcel, hop: int = 0) -> Sent:
        """Wrap a parcel."""
        return cls(parcel.kind, parcel.src, parcel.dst, parcel.text, hop)

    @property
    def parcel(self) -> Parcel:
        """What was wrapped."""
        return Parcel(self.kind, self.src, self.dst, self.text)


class Kick(msgspec.Struct, frozen=True, array_like=True, tag="k"):
    """Claims of this id up to this epoch are void: it was taken over."""

    peer_id: str
    epoch: int


class Probe(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    """To oneself: does what is published here arrive?"""

    number: int


type Item = Sent | Kick | Probe
type _Answer = Callable[[bool | None], None]
"""Is told whether somebody listened; None when the store did not say."""

_encode = msgspec.msgpack.Encoder().encode
_decode_list = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_decode_item = msgspec.msgpack.Decoder(Sent | Kick | Probe).decode


class Mail:
    """The letter box of this replica, and the way to those of others."""

    def __init__(
        self,
        store: RedisStore,
        log: FilteringBoundLogger,
        *,
        prefix: str,
        replica: str,
        times: StoreTimes,
        on_silence: Callable[[], None],
        rng: random.Random,
    ) -> None:
        self.listening = asyncio.Event()
        """Set while the own channel is subscribed."""
        self._store = store
        self._log = log
        self._prefix = prefix
        self._replica = replica
        self._times = times
        self._on_silence = on_silence
        self._rng = rng
        self._outgoing: dict[str, list[tuple[Item, _Answer]]] = {}
        self._something_to_send = asyncio.Event()
        self._may_go_on = asyncio.Event()
        self._subscription: Subscription | None = None
        self._is_finished = False
        self._seen_probe = 0
        self._probe_came = asyncio.Event()

    async def send(self, replica: str, item: Item) -> bool:
        """Send to a replica; True when it was listening.

        Raises:
            StoreAway: the store did not answer. The item may have arrived.
        """
        answer: asyncio.Future[bool | None] = asyncio.get_running_loop().create_future()

        def answered(listened: bool | None) -> None:
            if not answer.done():  # else its sender was cancelled
                answer.set_result(listened)

        self.post(replica, item, answered)
        self._may_go_on.set()
        listened = await answer
        if listened is None:
            raise StoreAway("The store did not take a message.")
        return listened

    def post(self, replica: str, item: Item, answered: Callable[[bool | None], None]) -> None:
        """Send to a replica; ``answered`` is told later whether it was listening.

        It is told None where ``send`` raises. It must not raise.
        """
        self._outgoing.setdefault(replica, []).append((item, answered))
        self._something_to_send.set()

    async def until_listening(self, patience_s: float) -> None:
        """Wait until the own channel is subscribed.

        Raises:
            StoreAway: it takes too long.
        """
        try:
            async with asyncio.timeout(patience_s):
                await self.listening.wait()
        except TimeoutError:
            raise StoreAway("The subscription does not stand.") from None

    async def run_sender(self) -> None:
        """Carry what is to be sent, for ever."""
        while True:
            await self._something_to_send.wait()
            self._something_to_send.clear()
            outgoing, self._outgoing = self._outgoing, {}
            for replica, items in outgoing.items():
                for part in _parts(items):
                    await self._carry(replica, part)
            await self._pace()

    async def _pace(self) -> None:
        # A timer and an event: a timeout would raise and catch for each letter.
        timer = asyncio.get_running_loop().call_later(_PACE_S, self._may_go_on.set)
        await self._may_go_on.wait()
        timer.cancel()
        self._may_go_on.clear()

    async def _carry(self, replica: str, part: list[tuple[bytes, _Answer]]) -> None:
        payload = _encode([msgspec.Raw(body) for body, _ in part])
        listened: bool | None = None
        with contextlib.suppress(StoreAway):
            listened = await self._store.publish(self._channel(replica), payload) > 0
        for _, answered in part:
            answered(listened)

    async def run_receiver(self, deliver: Callable[[Item], Awaitable[None]]) -> None:
        """Listen, and listen again after each break; ends after ``finish``."""
        pause_s = _FIRST_PAUSE_S
        while not self._is_finished:
            try:
                await self._listen(deliver)
            except (RedisError, OSError, TimeoutError, StoreAway) as error:
                self._log.debug("mail.broken", error=type(error).__name__)
            pause_s = min(_LONGEST_PAUSE_S, pause_s * 2)
            if self.listening.is_set():
                pause_s = _FIRST_PAUSE_S
                self.listening.clear()
            if not self._is_finished:
                self._on_silence()
                await asyncio.sleep(pause_s * self._rng.uniform(0.5, 1.0))

    async def _listen(self, deliver: Callable[[Item], Awaitable[None]]) -> None:
        subscription = await self._store.subscription(self._channel(self._replica))
        try:
            await subscription.open()
            self._subscription = subscription
            self._store.try_again()
            self.listening.set()
            while (payload := await subscription.next()) is not None:
                for item in self._opened(payload):
                    await deliver(item)
        finally:
            self._subscription = None
            await subscription.close()

    def _opened(self, payload: bytes) -> Iterator[Item]:
        try:
            for body in _decode_list(payload):
                item = _decode_item(body)
                if isinstance(item, Probe):
                    self._seen_probe = item.number
                    self._probe_came.set()
                else:
                    yield item
        except msgspec.DecodeError:
            self._log.warning("mail.unreadable", size_bytes=len(payload))

    async def run_prober(self) -> None:
        """Probe the own channel for ever: a subscription can die without a word (row 7)."""
        number = 0
        while True:
            await asyncio.sleep(self._times.probe_every_s)
            await self.listening.wait()
            number += 1
            if not await self._comes_back(number) and self._subscription is not None:
                self._store.tally.probes_lost += 1
                self._log.warning("mail.probe_lost")
                await self._subscription.close()

    async def _comes_back(self, number: int) -> bool:
        try:
            await self.send(self._replica, Probe(number))
            async with asyncio.timeout(self._times.probe_patience_s):
                while self._seen_probe != number:
                    self._probe_came.clear()
                    await self._probe_came.wait()
        except StoreAway:
            return True  # says nothing of the subscription
        except TimeoutError:
            return False
        return True

    async def finish(self, receiver: asyncio.Task[None]) -> None:
        """Stop listening, having delivered all that was published before."""
        self._is_finished = True
        if self._subscription is None:
            receiver.cancel()
            return
        self._subscription.finish()
        await asyncio.wait({receiver}, timeout=_FAREWELL_S)
        receiver.cancel()

    def _channel(self, replica: str) -> str:
        return f"{self._prefix}:r:{{{replica}}}"


def _parts(
    items: list[tuple[Item, _Answer]],
) -> Iterator[list[tuple[bytes, _Answer]]]:
    """Cut a list so that no payload is huge."""
    part: list[tuple[bytes, _Answer]] = []
    size_bytes = 0
    for item, answer in items:
        body = _encode(item)
        if part and size_bytes + len(body) > _MAX_PAYLOAD_BYTES:
            yield part
            part, size_bytes = [], 0
        part.append((body, answer))
        size_bytes += len(body)
    if part:
        yield part
