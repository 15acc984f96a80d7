"""What a seed draws for a simulated room: its devices, its weather, and a timeline of trouble."""

import random
from dataclasses import dataclass

from tests.support.fake_model import LAYERS
from tests.support.fake_rtc import CALM, Weather

BREEZE = Weather(delay_s=(0.001, 0.060), loss=0.02, retry_s=0.2, dial_s=(0.05, 1.0))
STORM = Weather(delay_s=(0.001, 0.120), loss=0.08, retry_s=0.25, dial_s=(0.05, 2.0))
WEATHERS = {"calm": CALM, "breeze": BREEZE, "storm": STORM}


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that happens at a time; for how long, and to whom."""

    at_s: float
    kind: str
    who: str = ""
    other: str = ""
    for_s: float | None = None

    def __str__(self) -> str:
        words = [f"{self.at_s:7.2f} s", self.kind, self.who, self.other]
        rest = "for ever" if self.for_s is None else f"{self.for_s:.1f} s"
        return " ".join(word for word in [*words, rest] if word)


@dataclass(frozen=True, slots=True)
class Plan:
    """A room and what happens to it."""

    seed: int
    workers: int
    guests: int
    split: tuple[int, ...] | None
    weather: str
    redeal_after_s: float | None
    max_tokens: int
    compute_s: float
    associations: int
    troubles: tuple[Trouble, ...]
    load_step_s: float = 0.2
    """A quarter of the time that loading takes."""

    def __str__(self) -> str:
        facts = (
            f"seed {self.seed}: {self.workers} workers, {self.guests} guests, split {self.split}, "
            f"{self.weather}, re-deal after {self.redeal_after_s}, {self.max_tokens} tokens, "
            f"{self.compute_s:.3f} s a frame, {self.load_step_s} s a load step, "
            f"{self.associations} associations"
        )
        return "\n".join([facts, *map(str, self.troubles)])


KINDS = {
    "join": 2,
    "leave": 1,
    "kill": 4,
    "freeze": 4,
    "cut": 4,
    "signaling away": 2,
    "host killed": 2,
    "kick": 2,
    "redeal": 2,
    "link loss": 3,
    "impostor": 1,
    "stop": 1,
}


def draw_plan(seed: int) -> Plan:
    """The same plan for the same seed."""
    chance = random.Random(f"chaos {seed}")
    workers = chance.choice([1, 1, 2, 2, 2, 3, 3, 4, 5])
    guests = chance.choice([0, 0, 1, 1, 2])
    everyone = ["host", *names("worker", workers), *names("guest", guests)]
    until_s = chance.choice([10.0, 20.0, 40.0, 60.0])
    troubles = []
    for _ in range(chance.choice([1, 1, 2, 2, 3, 4, 6])):
        troubles.append(_trouble(chance, everyone, until_s))
    questions = [
        _question(chance, everyone, chance.choice(troubles).at_s, until_s)
        for _ in range(chance.randint(1, 5))
    ]
    compute_s = chance.choice([0.002, 0.02, 0.1, 1.0])
    return Plan(
        seed=seed,
        workers=workers,
        guests=guests,
        split=_split(chance, workers + 1) if chance.random() < 0.6 else None,
        weather=chance.choice(list(WEATHERS)),
        redeal_after_s=chance.choice([60.0, 60.0, 60.0, 20.0, None]),
        max_tokens=chance.choice([8, 20, 40]) if compute_s < 1 else 4,
        compute_s=compute_s,
        load_step_s=chance.choice([0.2, 0.2, 1.5]),
        associations=chance.choice([1, 1, 1, 3, 0]),
        troubles=tuple(sorted([*troubles, *questions], key=lambda each: each.at_s)),
    )


def names(kind: str, count: int) -> list[str]:
    """Names of the devices of one kind."""
    return [f"{kind}-{i}" for i in range(1, count + 1)]


def _question(
    chance: random.Random, everyone: list[str], trouble_at_s: float, until_s: float
) -> Trouble:
    """Mostly just before or after some trouble."""
    near_s = max(0.0, trouble_at_s + chance.uniform(-4, 3))
    at_s = chance.choice([near_s, near_s, chance.uniform(0, until_s)])
    return Trouble(round(at_s, 2), "ask", chance.choice(everyone), for_s=0.0)


def _split(chance: random.Random, parts: int) -> tuple[int, ...]:
    cuts = sorted(chance.sample(range(1, LAYERS), parts - 1))
    return tuple(hi - lo for lo, hi in zip([0, *cuts], [*cuts, LAYERS], strict=True))


def _trouble(chance: random.Random, everyone: list[str], until_s: float) -> Trouble:
    kind = chance.choices(list(KINDS), list(KINDS.values()))[0]
    at_s, others = chance.uniform(0, until_s), everyone[1:]
    who, other = chance.choice(others), ""
    for_s: float | None = 0.0
    match kind:
        case "join":
            who, for_s = f"newcomer-{chance.randint(1, 9)}", None
        case "kill":
            for_s = chance.choice([None, *[chance.uniform(0.5, limit) for limit in (8, 30, 90)]])
        case "freeze":
            who, for_s = chance.choice(everyone), chance.uniform(1, chance.choice([8, 40]))
        case "cut":
            (who, other), for_s = chance.sample(everyone, 2), chance.uniform(1, 60)
        case "link loss":
            who, other = chance.sample(everyone, 2)
        case "signaling away":
            who, for_s = "", chance.uniform(1, 40)
        case "host killed":
            who, for_s = "host", chance.uniform(1, 20)
        case "impostor":
            for_s = chance.uniform(4, 40)
        case "redeal" | "stop":
            who = "host"
    for_s = None if for_s is None else round(for_s, 2)
    return Trouble(round(at_s, 2), kind, who, other, for_s)
