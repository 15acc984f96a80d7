"""A whole room on a virtual clock: real devices, real links, a seeded bad network, fake shards."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from contextvars import Context, copy_context
from dataclasses import asdict, dataclass, field
from typing import Any, Self, cast

from poolhouse_node.device.answering import GenerationSettings
from poolhouse_node.device.device import Identity
from poolhouse_node.device.entrance import Secrets
from poolhouse_node.device.events import Event
from poolhouse_node.device.host import Host, HostSettings
from poolhouse_node.device.joined import JoinedDevice
from poolhouse_node.device.model import RoomModel
from poolhouse_node.generate.ports import Compute
from poolhouse_node.generate.sampler import Sampling
from poolhouse_node.room.gate import Gate, GateState
from poolhouse_node.room.record import RoomMemory
from poolhouse_node.rtc.link import LinkSettings
from poolhouse_node.rtc.network import Network
from poolhouse_node.shard import FakeShard
from tests.support.fake_model import FakeLoader, FakeTokenizer, InlineCompute, needs
from tests.support.fake_rtc import CALM, FakeDialer, FakeNet, Weather
from tests.support.virtual_time import PROCESS, VirtualTimeLoop

HOST_ID = "pooled-room-ABCDEF"


@dataclass(eq=False)
class SimDevice:
    """A device of the simulation, with a process of its own, and what it told its person."""

    dialer: FakeDialer
    events: list[Event] = field(default_factory=list)
    context: Context = field(default_factory=copy_context)
    device: Host | JoinedDevice = field(init=False)
    is_killed: bool = False

    def __post_init__(self) -> None:
        self.context.run(PROCESS.set, self)
        self.dialer.context = self.context

    def seen(self, kind: type) -> list:
        return [event for event in self.events if isinstance(event, kind)]

    def spawn[T](self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run something as a part of its process."""
        return asyncio.get_running_loop().create_task(work, context=self.context.copy())

    def call[T](self, call: Callable[..., T], *args: Any) -> T:
        """Call something as a part of its process."""
        return self.context.copy().run(call, *args)

    def vanish(self, noticed_after_s: float = 15.0) -> None:
        """Its process is killed: nothing more comes from it, engines notice later."""
        self.is_killed = True
        self.dialer.vanish(noticed_after_s)
        self._loop.stop_process(self)

    def bury(self) -> None:
        """Let a killed or stopped process end, so that the test can."""
        self.dialer.frozen = False
        self._loop.continue_process(self)

    def freeze(self) -> None:
        """Its process is stopped (SIGSTOP): what is sent to it waits."""
        self.dialer.frozen = True
        self._loop.stop_process(self)

    def thaw(self) -> None:
        """It goes on, and finds out that it was away."""
        if not self.is_killed:
            self.bury()

    @property
    def _loop(self) -> VirtualTimeLoop:
        return cast("VirtualTimeLoop", asyncio.get_running_loop())


@dataclass
class SimRoom:
    """Use as an async context manager inside a virtual loop."""

    seed: int = 0
    weather: Weather = CALM
    split: tuple[int, ...] | None = None
    max_tokens: int = 12
    sampling: Sampling = field(default_factory=Sampling)
    load_step_s: float = 0.2
    compute_s: float = 0.002
    devices: list[SimDevice] = field(default_factory=list)
    saved_gates: list[GateState] = field(default_factory=list)
    redeal_after_s: float | None = 60.0
    links: LinkSettings | None = None
    shard: type[FakeShard] = FakeShard
    memories: list[RoomMemory] = field(default_factory=list)
    """What the host handed out to be kept, oldest first."""
    passes: dict[str, str] = field(default_factory=dict)
    """Passes that devices were given, by name: a device that is started again finds its own."""

    async def __aenter__(self) -> Self:
        self.chance = random.Random(self.seed)
        self.net = FakeNet(self.seed, self.weather)
        self._stack = await AsyncExitStack().__aenter__()
        return self

    async def __aexit__(self, *exc_info) -> None:
        for sim in self.devices:
            sim.bury()
        await self._stack.aclose()

    async def host(
        self,
        *,
        name: str = "host",
        pledge_gb: float = 1.0,
        gate: Gate | None = None,
        denies_unknown: bool = False,
        memory: RoomMemory | None = None,
    ) -> Host:
        self.gate = gate or self._kept_gate() or Gate(self.chance.randbytes, asks=False)
        sim = SimDevice(self.net.dialer(HOST_ID))
        return await sim.spawn(self._host(sim, name, pledge_gb, denies_unknown, memory))

    async def _host(
        self,
        sim: SimDevice,
        name: str,
        pledge_gb: float,
        denies_unknown: bool,
        memory: RoomMemory | None,
    ) -> Host:
        sim.device = host = Host(
            Network(sim.dialer, self.links),
            Identity(name, {"webgpu": True, "ua": "Device", "contribGB": pledge_gb}),
            sim.events.append,
            model=RoomModel("fake", "Fake", needs(), 2048, FakeTokenizer()),
            loader=FakeLoader(self.load_step_s, kind=self.shard),
            compute=self._compute(),
            settings=HostSettings(
                GenerationSettings(self.sampling, self.max_tokens),
                self.split,
                denies_unknown,
                self.redeal_after_s,
            ),
            gate=self.gate,
            save_gate=self.saved_gates.append,
            draw=self.chance.random,
            memory=memory,
            save_memory=self.memories.append,
        )
        self.devices.append(sim)
        return await self._stack.enter_async_context(host)

    async def join(
        self,
        name: str,
        *,
        holds_layers: bool = True,
        loader: FakeLoader | None = None,
        pledge_gb: float = 1.0,
        secrets: Secrets | None = None,
        trust_unverified: bool = False,
        wait: bool = True,
        compute: Compute | None = None,
    ) -> JoinedDevice:
        sim = SimDevice(self.net.dialer())
        joining = self._join(
            sim,
            Identity(name, {"webgpu": holds_layers, "ua": "Device", "contribGB": pledge_gb}),
            loader or FakeLoader(self.load_step_s, kind=self.shard),
            secrets or self._kept_secrets(name),
            trust_unverified,
            wait,
            compute or self._compute(),
        )
        return await sim.spawn(joining)

    async def _join(
        self,
        sim: SimDevice,
        identity: Identity,
        loader: FakeLoader,
        secrets: Secrets,
        trust_unverified: bool,
        wait: bool,
        compute: Compute,
    ) -> JoinedDevice:
        sim.device = device = JoinedDevice(
            Network(sim.dialer, self.links),
            identity,
            sim.events.append,
            host_id=HOST_ID,
            loader=loader,
            compute=compute,
            draw_bytes=self.chance.randbytes,
            secrets=secrets,
            trust_unverified=trust_unverified,
        )
        self.devices.append(sim)
        await self._stack.enter_async_context(device)
        if wait:
            await device.join()
        return device

    def of(self, device: Host | JoinedDevice) -> SimDevice:
        return next(sim for sim in self.devices if sim.device is device)

    def _kept_secrets(self, name: str) -> Secrets:
        def keep(given: str) -> None:
            self.passes[name] = given

        return Secrets(come_back_pass=self.passes.get(name, ""), changed=keep)

    def _kept_gate(self) -> Gate | None:
        if not self.saved_gates:
            return None
        gate = Gate.restore(self.chance.randbytes, asdict(self.saved_gates[-1]))
        gate.asks = False
        return gate

    def _compute(self) -> InlineCompute:
        return InlineCompute(lambda: self.chance.uniform(0.5, 1.5) * self.compute_s)
