"""Whole rooms under trouble that a seed draws: what happens, and what must hold all the same.

:func:`run_plan` runs a plan in virtual time; its report tells what was violated, and the plan.
``python -m tests.support.chaos SEED`` runs the plan of one seed and prints all of it.
"""

import asyncio
import random
import sys
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from poolhouse_node.device.answers import AskFailed, SeenAnswer
from poolhouse_node.device.dealing import StartError
from poolhouse_node.device.host import Host
from poolhouse_node.device.joined import JoinedDevice, JoinFailed
from poolhouse_node.room.asks import AskRefused
from poolhouse_node.room.record import RoomMemory
from poolhouse_node.rtc.link import LinkSettings
from tests.support.chaos_plan import WEATHERS, Plan, Trouble, draw_plan, names
from tests.support.chaos_rules import RightTexts, answers_shown, frames_in_order, ids_of, text_of
from tests.support.fake_rtc import ENGINE_GIVES_UP_S
from tests.support.simulation import SimDevice, SimRoom
from tests.support.virtual_time import run_virtual

LOOK_S = 1.0
"""Between two looks at who holds what."""
SETTLED_S = 45.0
"""After the last trouble, before a room that does nothing must be right everywhere."""
PATIENCE_S = 500.0
"""After the last trouble an answer may still need its six minutes."""
DOES_WORK = ("online", "answering")
"""States of a room that waits for nothing."""
REJOIN_S = 5.0
REJOINS = 12
"""A device that does not get in is started again by its supervisor, so often."""


@dataclass
class Asked:
    """A question and what became of it."""

    by: SimDevice
    text: str
    outcome: asyncio.Future


class Chaos:
    """One plan while it runs."""

    def __init__(self, plan: Plan, room: SimRoom) -> None:
        self.plan, self.room = plan, room
        self.by_name: dict[str, SimDevice] = {}
        self.asked: list[Asked] = []
        self.wrong: list[str] = []
        self.log: list[str] = []
        self.lives: list[tuple[SimDevice, list[tuple[str, list[int]]]]] = []
        """Every process that was the host, and the exchanges it began with."""
        self.started: list[asyncio.Task] = []
        self.abandoned: list[asyncio.Task] = []
        """What killed processes were about."""
        self.loop = asyncio.get_running_loop()
        self._impostors = 0
        self._says_why = False
        self._was_stopped = False
        """An answer may be whole and end early."""

    @property
    def host(self) -> SimDevice:
        return self.by_name["host"]

    def note(self, what: str) -> None:
        self.log.append(f"{self.loop.time():8.2f} {what}")

    async def run(self) -> None:
        self.loop.set_exception_handler(self._heard)
        await self._open()
        begun_at = self.loop.time()
        looking = asyncio.ensure_future(self._keep_looking())
        happening = [asyncio.ensure_future(self._at(begun_at, each)) for each in self.plan.troubles]
        await asyncio.gather(*happening)
        if self.started:
            await asyncio.wait({self.started[-1]}, timeout=PATIENCE_S)
        await self._until_answered()
        await asyncio.sleep(SETTLED_S)
        looking.cancel()
        self._judge()
        for ended in (*self.started, *self.abandoned, *(each.outcome for each in self.asked)):
            ended.cancel()

    def _heard(self, _loop: asyncio.AbstractEventLoop, context: dict) -> None:
        self.wrong.append(f"{context.get('message')}: {context.get('exception')!r}")

    async def _open(self) -> None:
        host = await self.room.host()
        self._is_host(self.room.of(host), [])
        for name in names("worker", self.plan.workers):
            self.by_name[name] = self.room.of(await self.room.join(name))
        await host.until_devices(self.plan.workers)
        await self.host.spawn(host.start())
        for name in names("guest", self.plan.guests):
            device = await self.room.join(name, holds_layers=False)
            self.by_name[name] = self.room.of(device)

    def _is_host(self, sim: SimDevice, exchanges: list[tuple[str, list[int]]]) -> None:
        self.by_name["host"] = sim
        self.lives.append((sim, exchanges))

    async def _at(self, begun_at: float, trouble: Trouble) -> None:
        await asyncio.sleep(begun_at + trouble.at_s - self.loop.time())
        self.note(str(trouble))
        happen: Callable = getattr(self, "_" + trouble.kind.replace(" ", "_"))
        await happen(trouble)

    # ---- what happens --------------------------------------------------------------------------

    async def _ask(self, trouble: Trouble) -> None:
        sim = self.by_name[trouble.who]
        if sim.is_killed or sim.dialer.frozen:
            return
        text = f"q{len(self.asked)} of {trouble.who}?"
        if isinstance(sim.device, Host):
            try:
                outcome = sim.call(sim.device.ask, text)
            except AskRefused as error:
                if not str(error):
                    self.wrong.append("a question was refused without a word")
                return
        else:
            outcome = sim.spawn(sim.device.ask(text))
        self.asked.append(Asked(sim, text, outcome))

    async def _stop(self, trouble: Trouble) -> None:
        self._was_stopped = True
        self.host.call(self.host.device.stop)

    async def _redeal(self, trouble: Trouble) -> None:
        try:
            self.host.call(self.host.device.deal_again)
        except AskRefused as error:
            self.note(f"refused: {error}")

    async def _kick(self, trouble: Trouble) -> None:
        self.host.call(self.host.device.kick, trouble.who)

    async def _join(self, trouble: Trouble) -> None:
        await self._enter(trouble.who)

    async def _leave(self, trouble: Trouble) -> None:
        sim = self.by_name[trouble.who]
        if not sim.is_killed and not sim.dialer.frozen:
            await self._ends(sim)

    async def _kill(self, trouble: Trouble) -> None:
        sim = self.by_name[trouble.who]
        if not sim.is_killed:
            sim.vanish(random.Random(self.plan.seed).choice([0.5, 17.0]))
        if trouble.for_s is not None:
            await asyncio.sleep(trouble.for_s)
            if self.by_name[trouble.who] is sim:
                await self._enter(trouble.who)

    async def _freeze(self, trouble: Trouble) -> None:
        sim = self.by_name[trouble.who]
        if sim.is_killed or sim.dialer.frozen:
            return
        self._freeze_now(sim)
        await asyncio.sleep(trouble.for_s or 0)
        sim.thaw()

    def _freeze_now(self, sim: SimDevice) -> None:
        sim.freeze()
        for end in sim.dialer.connections:
            at = self.loop.time() + self.room.chance.uniform(*ENGINE_GIVES_UP_S)
            self.room.net.call_at(at, lambda end=end: sim.dialer.frozen and end.other.die())

    async def _cut(self, trouble: Trouble) -> None:
        ids = [self.by_name[name].dialer.peer_id for name in (trouble.who, trouble.other)]
        self.room.net.cut(*ids)
        await asyncio.sleep(trouble.for_s or 0)
        self.room.net.mend(*ids)

    async def _link_loss(self, trouble: Trouble) -> None:
        one, two = (self.by_name[name].dialer for name in (trouble.who, trouble.other))
        for end in one.connections:
            if end.peer_id == two.peer_id and end.other.owner is two:
                end.die()
                end.other.die()

    async def _signaling_away(self, trouble: Trouble) -> None:
        self.room.net.set_signaling(False)
        await asyncio.sleep(trouble.for_s or 0)
        self.room.net.set_signaling(True)

    async def _impostor(self, trouble: Trouble) -> None:
        """Another process comes under the name of one that is frozen."""
        sim = self.by_name[trouble.who]
        if sim.is_killed or sim.dialer.frozen:
            return
        self._freeze_now(sim)
        await asyncio.sleep((trouble.for_s or 0) / 2)
        if self.by_name[trouble.who] is sim:
            entering = asyncio.ensure_future(self._enter(trouble.who))
            await asyncio.sleep((trouble.for_s or 0) / 2)
            sim.thaw()
            self._impostors += 1
            self.by_name[f"{trouble.who} of old {self._impostors}"] = sim
            await entering
        sim.thaw()

    async def _host_killed(self, trouble: Trouble) -> None:
        if self.host.is_killed:
            return
        self.host.vanish(self.room.chance.choice([0.5, 17.0]))
        memory = self.room.memories[-1] if self.room.memories else RoomMemory()
        await asyncio.sleep(trouble.for_s or 0)
        host = await self.room.host(memory=memory)
        before = [(each.question, list(each.answer_ids)) for each in memory.exchanges]
        self._is_host(self.room.of(host), before)
        seated = [seat.name for seat in memory.seats[1:]]
        self.started.append(self.host.spawn(self._start_again(host, seated)))

    async def _start_again(self, host: Host, seated: list[str]) -> None:
        await host.until_named(seated, timeout_s=25)
        while True:
            try:
                await host.start()
            except StartError as error:
                self.note(f"start failed: {error}")
                if error.is_final:
                    return
                await asyncio.sleep(REJOIN_S)
            else:
                return

    async def _unless_killed(self, sim: SimDevice, work: Coroutine[Any, Any, Any]) -> None:
        """Wait for something that its process does, unless it is killed before."""
        task = sim.spawn(work)
        while not task.done() and not sim.is_killed:
            await asyncio.wait({task}, timeout=0.5)
        if task.done():
            await task
        else:
            self.abandoned.append(task)

    async def _ends(self, sim: SimDevice) -> None:
        await self._unless_killed(sim, sim.device.__aexit__(None, None, None))
        if not sim.is_killed:
            sim.vanish(0.5)

    async def _enter(self, name: str) -> None:
        """A process of that name is started, and again when it does not get in."""
        holds_layers = not name.startswith("guest")
        for _ in range(REJOINS):
            try:
                device = await self.room.join(name, holds_layers=holds_layers, wait=False)
                sim = self.by_name[name] = self.room.of(device)
                await self._unless_killed(sim, device.join())
            except JoinFailed as error:
                self.note(f"{name} did not get in: {error}")
                await self._ends(sim)
                await asyncio.sleep(REJOIN_S)
            else:
                return

    # ---- what must hold ------------------------------------------------------------------------

    async def _until_answered(self) -> None:
        until = self.loop.time() + PATIENCE_S
        while self._is_busy() and self.loop.time() < until:
            await asyncio.sleep(1.0)
        left, status = self._open_questions(), self.host.device.status()
        self._says_why = status["waits_for"] is not None or status["state"] not in DOES_WORK
        if left and not self._says_why:
            self.wrong.append(f"no end of {[each.text for each in left]}, but it is {status}")
        if self.host.device.questions.is_busy:
            self._was_stopped = True
            self.host.call(self.host.device.stop)

    def _is_busy(self) -> bool:
        return bool(self._open_questions()) or self.host.device.questions.is_busy

    def _open_questions(self) -> list[Asked]:
        return [each for each in self.asked if not each.outcome.done() and not each.by.is_killed]

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self._look(is_settled=False)

    def _look(self, *, is_settled: bool) -> None:
        """Whoever sits somewhere holds just those layers, in a chain that is whole."""
        host = self.host
        if host.is_killed or host.dialer.frozen:
            return
        keeper = host.device.keeper
        if not keeper.is_whole:
            return
        own = keeper.shard
        bounds = [(own.lo, own.hi), *(seat.layers for seat in keeper.seats)]
        if [lo for lo, _ in bounds] != [0, *[hi for _, hi in bounds[:-1]]] or bounds[-1][1] != 12:
            self._say(f"the deal has a gap: {bounds}")
        for what in ("name", "peer_id"):
            seated = [getattr(seat, what) for seat in keeper.seats]
            if len(set(seated)) != len(seated):
                self._say(f"two seats of one {what}: {seated}")
        for sim in self.room.devices:
            if isinstance(sim.device, JoinedDevice) and self._is_reached(sim):
                self._compare(sim, keeper, is_settled=is_settled)

    def _is_reached(self, sim: SimDevice) -> bool:
        """Alive, and with one and the same link to this host at both ends."""
        if sim.is_killed or sim.dialer.frozen:
            return False
        host_peer = self.host.device.admitted_peer(sim.dialer.peer_id)
        peer = sim.device.peers.get(sim.device.host_id)
        if host_peer is None or peer is None or not peer.admitted:
            return False
        return host_peer.link._main.other is peer.link._main and peer.link.is_open

    def _compare(self, sim: SimDevice, keeper, *, is_settled: bool) -> None:
        worker, name = sim.device.worker, sim.device.name
        seat = keeper.seats.at(sim.dialer.peer_id)
        # ``ai-ready`` has no number: one of the deal before may still come in and count for this
        # one. Frames that a device takes no more are lost then, and their laps time out.
        runs = worker._runner is not None or not is_settled
        if seat is not None and (worker.layers != seat.layers or not runs):
            self._say(f"{name} sits on {seat.layers} and holds {worker.layers}, runs: {runs}")
        if seat is None and is_settled and worker.layers is not None:
            self._say(f"{name} has no seat and holds {worker.layers}")

    def _say(self, what: str) -> None:
        self.wrong.append(f"at {self.loop.time():.2f} s {what}")

    def _judge(self) -> None:
        self._look(is_settled=True)
        for sim in self.room.devices:
            if sim.device.tasks.failure.done() and not sim.device.tasks.failure.cancelled():
                error = sim.device.tasks.failure.exception()
                self.wrong.append(f"a task of {sim.device.identity.name} failed: {error!r}")
        self._judge_texts()
        self._judge_outcomes()

    def _judge_texts(self) -> None:
        right, ended = self._right_texts()
        for sim in self.room.devices:
            name = sim.device.identity.name
            for shown in answers_shown(sim):
                texts = right.get(shown.question, set())
                if not any(text.startswith(shown.text) for text in texts):
                    self.wrong.append(
                        f"{name} showed to {shown.question!r} {shown.text!r}, right is {texts}"
                    )
                if shown.ended is None:
                    continue
                if shown.ended.failure is not None:
                    self._judge_failure(f"{name}: {shown.question!r}", shown.ended.failure)
                elif not self._is_whole(shown.text, ended.get(shown.question, set())):
                    self.wrong.append(
                        f"{name} showed {shown.text!r} as the whole answer to {shown.question!r}"
                    )
        for each in self.asked:
            outcome = each.outcome
            if outcome.done() and not outcome.cancelled() and outcome.exception() is None:
                answer = outcome.result()
                is_well = isinstance(answer, SeenAnswer) or answer.failure is None
                if is_well and not self._is_whole(answer.text, ended.get(each.text, set())):
                    self.wrong.append(
                        f"{each.by.device.identity.name} got {answer.text!r} for {each.text!r}"
                    )

    def _judge_failure(self, what: str, sentence: str) -> None:
        """It has words, and none about a model that could not be run: every model part can."""
        if not sentence.strip() or "reported an error" in sentence:
            self.wrong.append(f"{what} broke with {sentence!r}")

    def _is_whole(self, text: str, whole: set[str]) -> bool:
        """A host that was started again may be stopped short of what its devices saw before."""
        if self._was_stopped:
            return any(text.startswith(each) for each in whole)
        return text in whole

    def _right_texts(self) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
        """By question: what might be shown, and what was said to be a whole answer."""
        oracle = RightTexts(self.plan.max_tokens)
        right: dict[str, set[str]] = {}
        ended: dict[str, set[str]] = {}
        for sim, before in self.lives:
            exchanges = list(before)
            for shown in answers_shown(sim):
                whole = text_of(oracle.ids(exchanges, shown.question))
                right.setdefault(shown.question, set()).add(whole)
                exchanges.append((shown.question, ids_of(shown.text)))
                if shown.ended is None or shown.ended.failure is not None:
                    continue
                ended.setdefault(shown.question, set()).add(shown.text)
                if shown.text != whole and not self._was_stopped:
                    self.wrong.append(
                        f"the host ended {shown.question!r} with {shown.text!r}, not {whole!r}"
                    )
        return right, ended

    def _judge_outcomes(self) -> None:
        for each in self.asked:
            outcome = each.outcome
            if not outcome.done():
                if not each.by.is_killed and not self._says_why:
                    self.wrong.append(f"{each.text!r} has no end")
            elif not outcome.cancelled():
                error = outcome.exception()
                if error is not None and not (isinstance(error, AskFailed) and str(error)):
                    self.wrong.append(f"{each.text!r} ended with {error!r}")


@dataclass
class Report:
    """What a run showed."""

    plan: Plan
    wrong: list[str]
    log: list[str]
    asked: int
    well: int
    virtual_s: float

    def __str__(self) -> str:
        alone = f"Alone: python -m tests.support.chaos {self.plan.seed}"
        return "\n".join([str(self.plan), "", *self.log, "", *self.wrong, "", alone])


def run_plan(plan: Plan) -> Report:
    """Run it to its end."""

    async def main() -> Report:
        room = SimRoom(
            seed=plan.seed,
            weather=WEATHERS[plan.weather],
            split=plan.split,
            max_tokens=plan.max_tokens,
            compute_s=plan.compute_s,
            load_step_s=plan.load_step_s,
            redeal_after_s=plan.redeal_after_s,
            links=LinkSettings(plan.associations, keepalive_s=0),
        )
        chaos = Chaos(plan, room)
        room.shard = frames_in_order(chaos.wrong)
        async with room:
            await chaos.run()
        await asyncio.sleep(60)
        left = [task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}]
        if left:
            chaos.wrong.append(f"tasks are left: {left}")
        well = sum(
            each.outcome.done() and not each.outcome.cancelled() and not each.outcome.exception()
            for each in chaos.asked
        )
        now = asyncio.get_running_loop().time()
        return Report(plan, chaos.wrong, chaos.log, len(chaos.asked), well, now)

    return run_virtual(main(), longest_s=3600.0)


if __name__ == "__main__":
    print(run_plan(draw_plan(int(sys.argv[1]))))
