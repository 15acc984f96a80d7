"""The host's queue of questions and the answer that runs (generation, sections 13 to 15)."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from poolhouse_node.device.events import (
    AnswerEnded,
    AnswerStarted,
    PromptProgress,
    TokenShown,
)
from poolhouse_node.generate.conversation import Conversation, Exchange, PromptTooLong
from poolhouse_node.generate.decode import Answer, GenerationRequest, answer
from poolhouse_node.generate.ports import LapFailed
from poolhouse_node.generate.template import TemplateError
from poolhouse_node.generate.tokenizer import TextStream
from poolhouse_node.room.asks import TEXT_CHARACTERS_MAX, Ask, AskQueue, AskRefused
from poolhouse_node.shard import ShardError
from poolhouse_node.wire.messages.asking import (
    Answered,
    ContextUse,
    GenerationDone,
    GenerationStart,
    History,
    Queue,
    Queued,
    Token,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolhouse_node.device.events import Notify
    from poolhouse_node.generate.sampler import Sampling
    from poolhouse_node.generate.trunk import Trunk
    from poolhouse_node.wire.messages import Message

__all__ = ["AnswerRecord", "Answering", "GenerationSettings"]

HISTORY_KEPT = 50
HISTORY_SENT = 20


@dataclass(frozen=True, slots=True)
class GenerationSettings:
    """How this room's answers are made."""

    sampling: Sampling
    max_tokens: int
    system: str = ""


@dataclass(frozen=True, slots=True)
class AnswerRecord:
    """An answer and its figures. ``failure`` is a sentence when it broke off."""

    text: str
    token_ids: tuple[int, ...]
    prompt_tokens: int
    ttft_s: float | None
    """Seconds from the start of the answer to its first token."""
    tokens_per_s: float | None
    """Tokens after the first, over the time they took."""
    reason: str
    failure: str | None = None


@dataclass(slots=True)
class _Running:
    """Measures one answer and turns its tokens into text."""

    started_at: float
    stream: TextStream
    ids: list[int] = field(default_factory=list)
    text: str = ""
    first_at: float | None = None
    last_at: float = 0.0
    prompt_tokens: int = 0

    def record(self, reason: str, failure: str | None = None) -> AnswerRecord:
        ttft_s = None if self.first_at is None else self.first_at - self.started_at
        after_first_s = self.last_at - (self.first_at or 0.0)
        rate = (len(self.ids) - 1) / after_first_s if len(self.ids) > 1 and after_first_s else None
        return AnswerRecord(
            self.text, tuple(self.ids), self.prompt_tokens, ttft_s, rate, reason, failure
        )


@dataclass(slots=True)
class Answering:
    """One answer at a time; what everyone sees of it goes through ``broadcast``."""

    trunk: Trunk
    conversation: Conversation
    settings: GenerationSettings
    draw: Callable[[], float]
    broadcast: Callable[[Message], None]
    tell: Callable[[str, Message], None]
    notify: Notify
    my_id: Callable[[], str]
    queue: AskQueue = field(default_factory=AskQueue)
    transcript: deque[Answered] = field(default_factory=lambda: deque(maxlen=HISTORY_KEPT))
    _wanted: dict[Ask, asyncio.Future[AnswerRecord]] = field(default_factory=dict)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _stop: bool = False
    _answers: int = 0

    def ask(self, ask: Ask) -> asyncio.Future[AnswerRecord]:
        """Queue a question; the future gives its record, also when the answer broke off.

        Raises :class:`AskRefused <poolhouse_node.room.asks.AskRefused>`.
        """
        if not (ask.text.strip() if ask.prompt_ids is None else ask.prompt_ids):
            raise AskRefused("The question is empty.")
        place = self.queue.put(ask)
        self._wanted[ask] = asyncio.get_running_loop().create_future()
        if place:
            self.tell(ask.asker, Queued(pos=place))
            self.broadcast(Queue(n=len(self.queue.waiting)))
        self._arrived.set()
        return self._wanted[ask]

    def stop(self, asker: str) -> None:
        """End the running answer after the lap in flight: its asker may, and the host always."""
        running = self.queue.running
        if running is not None and asker in {running.asker, self.my_id()}:
            self._stop = True

    def withdraw(self, asker: str) -> None:
        """A device left: its waiting questions are dropped."""
        gone = [ask for ask in self.queue.waiting if ask.asker == asker]
        self.queue.withdraw(asker)
        for ask in gone:
            self._wanted.pop(ask).cancel()
        if gone:
            self.broadcast(Queue(n=len(self.queue.waiting)))

    def history(self) -> History:
        """The last exchanges, for a newcomer."""
        return History(items=list(self.transcript)[-HISTORY_SENT:])

    @property
    def is_busy(self) -> bool:
        """An answer runs."""
        return self.queue.running is not None

    async def work(self) -> None:
        """Answer questions until cancelled."""
        while True:
            ask = self.queue.running
            if ask is None:
                self._arrived.clear()
                await self._arrived.wait()
                continue
            record = await self._answer(ask)
            wanted = self._wanted.pop(ask)
            if not wanted.done():
                wanted.set_result(record)
            self.queue.next()
            self._say_places()

    def _say_places(self) -> None:
        for asker, place in self.queue.places():
            self.tell(asker, Queued(pos=place))
        self.broadcast(Queue(n=len(self.queue.waiting)))

    async def _answer(self, ask: Ask) -> AnswerRecord:
        self._stop = False
        self._answers += 1
        self.broadcast(
            GenerationStart(name=ask.name, text=ask.text, asker=ask.asker, mid=self._answers)
        )
        self.notify(AnswerStarted(ask.name, ask.text, ask.asker == self.my_id()))
        loop = asyncio.get_running_loop()
        running = _Running(loop.time(), TextStream(self.conversation.tokenizer))
        exchange = Exchange(ask.name, ask.text[:TEXT_CHARACTERS_MAX])
        try:
            result = await self._generate(ask, exchange, running)
        except (LapFailed, ShardError, PromptTooLong, TemplateError) as error:
            record = running.record("error", str(error))
        else:
            self._show(ask, running, running.stream.flush())
            record = running.record(result.reason)
        self._end(ask, exchange, record)
        return record

    async def _generate(self, ask: Ask, exchange: Exchange, running: _Running) -> Answer:
        request = self._request(ask, exchange)
        running.prompt_tokens = len(request.prompt_ids)
        loop = asyncio.get_running_loop()

        def show(token: int) -> None:
            running.last_at = loop.time()
            running.first_at = running.first_at or running.last_at
            running.ids.append(token)
            exchange.answer_ids.append(token)
            self._show(ask, running, running.stream.push(token))

        return await answer(
            self.trunk,
            request,
            draw=self.draw,
            show=show,
            stopped=lambda: self._stop,
            progress=lambda fed, total: self.notify(PromptProgress(fed, total)),
        )

    def _request(self, ask: Ask, exchange: Exchange) -> GenerationRequest:
        tokenizer, settings = self.conversation.tokenizer, self.settings
        context_size = self.trunk.shard.context_size
        if ask.prompt_ids is not None:
            if len(ask.prompt_ids) >= context_size:
                raise PromptTooLong(
                    f"The prompt is {len(ask.prompt_ids)} tokens long; "
                    f"the room's context holds {context_size}."
                )
            ids = list(ask.prompt_ids)
        else:
            self.conversation.exchanges.append(exchange)
            try:
                ids = self.conversation.render(context_size)
            except (PromptTooLong, TemplateError):
                self.conversation.exchanges.pop()
                raise
        return GenerationRequest(ids, settings.max_tokens, settings.sampling, tokenizer.end_ids)

    def _show(self, ask: Ask, running: _Running, text: str) -> None:
        running.text += text
        if text:
            self.broadcast(Token(text=text, d=0))
            self.notify(TokenShown(text, ask.asker == self.my_id()))

    def _end(self, ask: Ask, exchange: Exchange, record: AnswerRecord) -> None:
        stats = record.failure or _stats(record)
        context_size = self.trunk.shard.context_size
        used = min(record.prompt_tokens + len(record.token_ids), context_size)
        self.transcript.append(
            Answered(
                name=ask.name, text=ask.text, reply=record.text, stats=stats, mid=self._answers
            )
        )
        self.broadcast(
            GenerationDone(
                stats=stats,
                ctx=ContextUse(used=used, max=context_size),
                failed=1 if record.failure else 0,
                capped=1 if record.reason in {"max", "ctx"} else 0,
            )
        )
        self.notify(AnswerEnded(stats, ask.asker == self.my_id(), record.failure))


def _stats(record: AnswerRecord) -> str:
    count = len(record.token_ids)
    words = [f"{count} token" if count == 1 else f"{count} tokens"]
    if record.tokens_per_s:
        words.append(f"{record.tokens_per_s:.1f} tok/s")
    if record.ttft_s is not None:
        words.append(f"first after {record.ttft_s:.2f} s")
    return " · ".join(words)
