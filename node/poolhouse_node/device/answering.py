"""The host's queue of questions and the answer that runs (generation, sections 13 to 15)."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from poolhouse_node.device.answer_record import AnswerRecord, Running, outcome_of
from poolhouse_node.device.events import (
    AnswerEnded,
    AnswerResumed,
    AnswerStarted,
    AnswerWaits,
    PromptProgress,
    TokenMade,
    TokenShown,
)
from poolhouse_node.generate.conversation import Conversation, Exchange, PromptTooLong
from poolhouse_node.generate.decode import Answer, GenerationRequest, answer
from poolhouse_node.generate.ports import LapFailed
from poolhouse_node.generate.template import TemplateError
from poolhouse_node.generate.tokenizer import TextStream
from poolhouse_node.room import record
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
    from collections.abc import Awaitable, Callable

    from poolhouse_node.device.events import Notify
    from poolhouse_node.generate.sampler import Sampling
    from poolhouse_node.generate.trunk import Trunk
    from poolhouse_node.wire.messages import Message

__all__ = ["AnswerRecord", "Answering", "GenerationSettings"]

HISTORY_KEPT = 50
HISTORY_SENT = 20
TRIES = 4
"""An answer is begun at most this often (liveness, section 8)."""
ERROR_PAUSES_S = (2.0, 8.0, 15.0)
"""Before an answer is begun again after a device reported an error. A stripe that is dead at its
end alone loses frames until this end's engine notices, up to 20 s later: the device then reports
frames that do not fit what it holds, and is well (decision 2)."""
STOP_POLL_S = 0.25


@dataclass(frozen=True, slots=True)
class GenerationSettings:
    """How this room's answers are made."""

    sampling: Sampling
    max_tokens: int
    system: str = ""


@dataclass(slots=True)
class Answering:
    """One answer at a time; what everyone sees of it goes through ``broadcast``.

    ``until_whole`` waits for a chain that can answer; it is given what stops the waiting, and says
    whether there is such a chain now. A new deal replaces :attr:`trunk`.
    """

    trunk: Trunk
    conversation: Conversation
    settings: GenerationSettings
    draw: Callable[[], float]
    broadcast: Callable[[Message], None]
    tell: Callable[[str, Message], None]
    notify: Notify
    my_id: Callable[[], str]
    until_whole: Callable[[Callable[[], bool]], Awaitable[bool]]
    remember: Callable[[], None] = lambda: None
    """A question was taken, or its answer begins: a host started again must know."""
    give_up_waiting: Callable[[], None] = lambda: None
    """An answer is stopped that a silent device holds up."""
    awaited: Callable[[], str] = lambda: ""
    """What the chain waits for, in words."""
    queue: AskQueue = field(default_factory=AskQueue)
    transcript: deque[Answered] = field(default_factory=lambda: deque(maxlen=HISTORY_KEPT))
    _wanted: dict[Ask, asyncio.Future[AnswerRecord]] = field(default_factory=dict)
    _asked_at: dict[Ask, float] = field(default_factory=dict)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _stop: bool = False
    _answers: int = 0
    _running: Running | None = None
    _shown_before: dict[Ask, list[int]] = field(default_factory=dict)
    """Ids of an answer that the host began before it was started again."""

    def ask(self, ask: Ask) -> asyncio.Future[AnswerRecord]:
        """Queue a question; the future gives its record, also when the answer broke off.

        Raises :class:`AskRefused <poolhouse_node.room.asks.AskRefused>`.
        """
        if not (ask.text.strip() if ask.prompt_ids is None else ask.prompt_ids):
            raise AskRefused("The question is empty.")
        place = self.queue.put(ask)
        self._expect(ask)
        self._stop &= place > 0
        if place:
            self.tell(ask.asker, Queued(pos=place))
            self.broadcast(Queue(n=len(self.queue.waiting)))
        self._arrived.set()
        self.remember()
        return self._wanted[ask]

    def stop(self, asker: str) -> None:
        """End the running answer after the lap in flight: its asker may, and the host always."""
        running = self.queue.running
        if running is not None and asker in {running.asker, self.my_id()}:
            self._stop = True
            self.give_up_waiting()

    def withdraw(self, asker: str) -> None:
        """A device left: its waiting questions are dropped."""
        gone = [ask for ask in self.queue.waiting if ask.asker == asker]
        self.queue.withdraw(asker)
        for ask in gone:
            self._wanted.pop(ask).cancel()
            del self._asked_at[ask]
        if gone:
            self.broadcast(Queue(n=len(self.queue.waiting)))

    def history(self) -> History:
        """The last exchanges, for a newcomer."""
        return History(items=list(self.transcript)[-HISTORY_SENT:])

    def so_far(self) -> list[Message]:
        """What a device that comes in the middle of an answer has missed of it."""
        running = self._running
        if running is None:
            return []
        text = [Token(text=running.text, d=0)] if running.text else []
        return [self._start_message(running), *text]

    def places_of(self, asker: str) -> list[Message]:
        """Where the waiting questions of a device are in the queue, for one that came back."""
        return [Queued(pos=place) for who, place in self.queue.places() if who == asker]

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
            done = await self._answer(ask)
            wanted = self._wanted.pop(ask)
            if not wanted.done():
                wanted.set_result(done)
            self.queue.next()
            self._stop = False
            self.say_places()

    # ---- across a restart ----------------------------------------------------------------------

    def memory(self) -> record.RoomMemory:
        """What a host that is started again goes on from; its seats are not known here."""
        running = self._running
        exchanges = self.conversation.exchanges
        asked = running is not None and running.ask.prompt_ids is None
        return record.RoomMemory(
            answers=self._answers,
            exchanges=[
                record.RecordedExchange(
                    name=each.name, question=each.question, answer_ids=list(each.answer_ids)
                )
                for each in (exchanges[:-1] if asked else exchanges)
            ],
            transcript=[
                record.RecordedReply(
                    name=each.name,
                    text=each.text,
                    reply=each.reply,
                    stats=each.stats or "",
                    mid=each.mid or 0,
                )
                for each in list(self.transcript)[-record.TRANSCRIPT_KEPT :]
            ],
            running=None if running is None else _recorded_running(running),
            waiting=[_recorded_ask(ask) for ask in self.queue.waiting],
        )

    def take_up(self, memory: record.RoomMemory) -> None:
        """Go on from what a host before this process knew; the running answer goes on first."""
        self._answers = memory.answers
        self.conversation.exchanges += [
            Exchange(each.name, each.question, list(each.answer_ids)) for each in memory.exchanges
        ]
        self.transcript.extend(
            Answered(
                name=each.name, text=each.text, reply=each.reply, stats=each.stats, mid=each.mid
            )
            for each in memory.transcript
        )
        waiting = [_ask(recorded) for recorded in memory.waiting]
        if memory.running is not None:
            ask = _ask(memory.running.ask)
            self._shown_before[ask] = list(memory.running.shown_ids)
            waiting.insert(0, ask)
        for ask in waiting:
            self.queue.put(ask)
            self._expect(ask)
        self._arrived.set()

    def _expect(self, ask: Ask) -> None:
        loop = asyncio.get_running_loop()
        self._wanted[ask], self._asked_at[ask] = loop.create_future(), loop.time()

    # ---- one answer ----------------------------------------------------------------------------

    def say_places(self) -> None:
        """Everyone who waits hears its place, and all how many there are."""
        for asker, place in self.queue.places():
            self.tell(asker, Queued(pos=place))
        self.broadcast(Queue(n=len(self.queue.waiting)))

    async def _answer(self, ask: Ask) -> AnswerRecord:
        running = self._running = self._begin(ask)
        exchange = Exchange(ask.name, ask.text[:TEXT_CHARACTERS_MAX], list(running.ids))
        try:
            result = await self._generate(exchange, running)
        except (LapFailed, ShardError, PromptTooLong, TemplateError) as error:
            done, outcome = running.record("error", str(error)), outcome_of("error", error)
        else:
            self._show(ask, running.add(running.stream.flush()))
            done, outcome = running.record(result.reason), outcome_of(result.reason)
        self._running = None
        self._end(running, done)
        loop = asyncio.get_running_loop()
        self.notify(running.measured(outcome, loop.time()))
        self.remember()
        return done

    def _begin(self, ask: Ask) -> Running:
        before = self._shown_before.pop(ask, None)
        if before is None:
            self._answers += 1
        loop = asyncio.get_running_loop()
        stream = TextStream(self.conversation.tokenizer)
        running = Running(ask, self._answers, loop.time(), stream, self._asked_at.pop(ask))
        self.broadcast(self._start_message(running))
        self.notify(AnswerStarted(ask.name, ask.text, self._is_mine(ask)))
        running.ids = before or []
        running.ids_before = len(running.ids)
        # Devices may have seen less of it than was shown, or a little more: they get it whole.
        self._show(ask, running.add("".join(map(stream.push, running.ids))))
        return running

    def _start_message(self, running: Running) -> GenerationStart:
        ask = running.ask
        return GenerationStart(name=ask.name, text=ask.text, asker=ask.asker, mid=running.number)

    async def _generate(self, exchange: Exchange, running: Running) -> Answer:
        request = self._request(running.ask, exchange)
        running.prompt_tokens = len(request.prompt_ids)
        self.remember()
        failed: LapFailed | None = None
        for tried in range(TRIES):
            if failed is not None and failed.kind == "device-error":
                await self._pause(ERROR_PAUSES_S[tried - 1])
            if self._stop:
                return Answer(reason="abort")
            if not await self.until_whole(lambda: self._stop):
                if self._stop:
                    return Answer(reason="abort")
                break
            if failed is not None:
                self.notify(AnswerResumed())
            try:
                return await self._go_on(request, exchange, running)
            except LapFailed as error:
                if not error.may_pass:
                    raise
                failed = error
                self.notify(AnswerWaits(str(error)))
        waited_for = self.awaited()
        raise failed or LapFailed(
            "left", f"The room was not whole in time for this question ({waited_for or 'unknown'})."
        )

    async def _pause(self, pause_s: float) -> None:
        """Wait, unless the answer is stopped."""
        for _ in range(round(pause_s / STOP_POLL_S)):
            if not self._stop:
                await asyncio.sleep(STOP_POLL_S)

    async def _go_on(
        self, request: GenerationRequest, exchange: Exchange, running: Running
    ) -> Answer:
        """Generate behind what was shown already, with the rest of the budget."""
        loop = asyncio.get_running_loop()
        budget = request.max_tokens - len(running.ids)
        if budget < 1:
            return Answer(reason="max")

        def show(token: int) -> None:
            exchange.answer_ids.append(token)
            self._show(running.ask, running.take(token, loop.time()))
            self.notify(TokenMade(running.gap_s))

        rest = replace(
            request,
            prompt_ids=[*request.prompt_ids, *running.ids],
            max_tokens=budget,
        )
        return await answer(
            self.trunk,
            rest,
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

    def _is_mine(self, ask: Ask) -> bool:
        return ask.asker == self.my_id()

    def _show(self, ask: Ask, text: str) -> None:
        if text:
            self.broadcast(Token(text=text, d=0))
            self.notify(TokenShown(text, self._is_mine(ask)))

    def _end(self, running: Running, done: AnswerRecord) -> None:
        ask, stats = running.ask, done.failure or done.figures()
        context_size = self.trunk.shard.context_size
        used = min(done.prompt_tokens + len(done.token_ids), context_size)
        self.transcript.append(
            Answered(name=ask.name, text=ask.text, reply=done.text, stats=stats, mid=running.number)
        )
        self.broadcast(
            GenerationDone(
                stats=stats,
                ctx=ContextUse(used=used, max=context_size),
                failed=1 if done.failure else 0,
                capped=1 if done.reason in {"max", "ctx"} else 0,
            )
        )
        self.notify(AnswerEnded(stats, self._is_mine(ask), done.failure))


def _recorded_running(running: Running) -> record.RunningAnswer:
    return record.RunningAnswer(
        ask=_recorded_ask(running.ask), mid=running.number, shown_ids=list(running.ids)
    )


def _recorded_ask(ask: Ask) -> record.RecordedAsk:
    ids = None if ask.prompt_ids is None else list(ask.prompt_ids)
    return record.RecordedAsk(asker=ask.asker, name=ask.name, text=ask.text, prompt_ids=ids)


def _ask(recorded: record.RecordedAsk) -> Ask:
    ids = None if recorded.prompt_ids is None else tuple(recorded.prompt_ids)
    return Ask(recorded.asker, recorded.name, recorded.text, ids)
