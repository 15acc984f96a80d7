"""One answer: prompt in, tokens out (generation, sections 7.1 and 13)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from poolhouse_node.generate.sampler import Sampling, choose

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from poolhouse_node.generate.trunk import Trunk

__all__ = ["Answer", "EndReason", "GenerationRequest", "answer"]

type EndReason = Literal["stop", "max", "ctx", "abort"]


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """What to generate over ``prompt_ids``."""

    prompt_ids: Sequence[int]
    max_tokens: int
    sampling: Sampling
    end_ids: frozenset[int]
    """Neither shown nor sent round the chain. Empty: nothing ends the answer but its length."""


@dataclass(slots=True)
class Answer:
    """The tokens so far and, at the end, why it ended."""

    ids: list[int] = field(default_factory=list)
    reason: EndReason = "stop"


async def answer(
    trunk: Trunk,
    request: GenerationRequest,
    *,
    draw: Callable[[], float],
    show: Callable[[int], None],
    stopped: Callable[[], bool],
    progress: Callable[[int, int], None],
) -> Answer:
    """Generate; ``show`` gets every token as it is sampled.

    ``stopped`` is asked between laps, so a stop takes effect after the lap in flight. Raises what
    :meth:`Trunk.prefill <poolhouse_node.generate.trunk.Trunk.prefill>` raises; what was shown until
    then stands.
    """
    result = Answer()
    candidates, context_size = request.sampling.candidates, trunk.shard.context_size
    budget = min(request.max_tokens, context_size - len(request.prompt_ids))
    top = await trunk.prefill(request.prompt_ids, candidates, stopped=stopped, progress=progress)
    while top is not None:
        if stopped():
            break
        token = choose(top, request.sampling, draw())
        if token in request.end_ids:
            result.reason = "stop"
            return result
        result.ids.append(token)
        show(token)
        if trunk.position >= context_size - 1:
            result.reason = "ctx"
            return result
        if len(result.ids) >= budget:
            result.reason = "max"
            return result
        top = await trunk.step(token, candidates)
    result.reason = "abort"
    return result
