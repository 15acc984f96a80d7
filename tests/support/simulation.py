"""A whole room on a virtual clock: real devices, real links, a seeded bad network, fake shards."""

import random
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Self

from poolhouse_node.device.answering import GenerationSettings
from poolhouse_node.device.device import Identity
from poolhouse_node.device.entrance import Secrets
from poolhouse_node.device.events import Event
from poolhouse_node.device.host import Host, HostSettings
from poolhouse_node.device.joined import JoinedDevice
from poolhouse_node.device.model import RoomModel
from poolhouse_node.generate.sampler import Sampling
from poolhouse_node.room.gate import Gate, GateState
from poolhouse_node.rtc.network import Network
from tests.support.fake_model import FakeLoader, FakeTokenizer, InlineCompute, needs
from tests.support.fake_rtc import CALM, FakeDialer, FakeNet, Weather

HOST_ID = "pooled-room-ABCDEF"


@dataclass
class SimDevice:
    """A device of the simulation and what it told its person."""

    device: Host | JoinedDevice
    dialer: FakeDialer
    events: list[Event] = field(default_factory=list)

    def seen(self, kind: type) -> list:
        return [event for event in self.events if isinstance(event, kind)]

    def vanish(self, noticed_after_s: float = 15.0) -> None:
        """Its process is killed: nothing more comes from it, engines notice later."""
        self.dialer.vanish(noticed_after_s)


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

    async def __aenter__(self) -> Self:
        self.chance = random.Random(self.seed)
        self.net = FakeNet(self.seed, self.weather)
        self._stack = await AsyncExitStack().__aenter__()
        return self

    async def __aexit__(self, *exc_info) -> None:
        await self._stack.aclose()

    async def host(
        self,
        *,
        name: str = "host",
        pledge_gb: float = 1.0,
        gate: Gate | None = None,
        denies_unknown: bool = False,
    ) -> Host:
        self.gate = gate or Gate(self.chance.randbytes, asks=False)
        dialer, events = self.net.dialer(HOST_ID), []
        host = Host(
            Network(dialer),
            Identity(name, {"webgpu": True, "ua": "Device", "contribGB": pledge_gb}),
            events.append,
            model=RoomModel("fake", "Fake", needs(), 2048, FakeTokenizer()),
            loader=FakeLoader(self.load_step_s),
            compute=self._compute(),
            settings=HostSettings(
                GenerationSettings(self.sampling, self.max_tokens), self.split, denies_unknown
            ),
            gate=self.gate,
            save_gate=self.saved_gates.append,
            draw=self.chance.random,
        )
        self.devices.append(SimDevice(host, dialer, events))
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
    ) -> JoinedDevice:
        dialer, events = self.net.dialer(), []
        device = JoinedDevice(
            Network(dialer),
            Identity(name, {"webgpu": holds_layers, "ua": "Device", "contribGB": pledge_gb}),
            events.append,
            host_id=HOST_ID,
            loader=loader or FakeLoader(self.load_step_s),
            compute=self._compute(),
            draw_bytes=self.chance.randbytes,
            secrets=secrets,
            trust_unverified=trust_unverified,
        )
        self.devices.append(SimDevice(device, dialer, events))
        await self._stack.enter_async_context(device)
        if wait:
            await device.join()
        return device

    def of(self, device: Host | JoinedDevice) -> SimDevice:
        return next(sim for sim in self.devices if sim.device is device)

    def _compute(self) -> InlineCompute:
        return InlineCompute(lambda: self.chance.uniform(0.5, 1.5) * self.compute_s)
