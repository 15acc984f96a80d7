"""What can go wrong with model files. Every text is a sentence for a person.

::

    WeightsError
    +-- UnknownModel      no such catalogue key; close matches are attached
    +-- ModelFileError    a file that cannot be read as a model
    |   +-- GgufError         it is not a sound GGUF
    |   +-- SafetensorsError  it is not sound safetensors, or its config.json does not fit
    +-- PullError         a model could not be fetched
        +-- WrongContent  size or digest differ; the bad bytes were deleted
        +-- BadReply      a server's answer to a range request does not hold together
        +-- DiskFull      no room for the file
        +-- PullCancelled the caller asked to stop; the partial file is kept
        +-- NoSource      every source failed; what was tried is attached
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "BadReply",
    "DiskFull",
    "GgufError",
    "ModelFileError",
    "NoSource",
    "PullCancelled",
    "PullError",
    "ReplyFault",
    "SafetensorsError",
    "UnknownModel",
    "WeightsError",
    "WrongContent",
]

type ReplyFault = Literal["status", "range", "length"]


class WeightsError(Exception):
    """Anything this package reports."""


class UnknownModel(WeightsError):
    """``name`` is no catalogue key, file or URL; ``close`` are keys spelled like it."""

    def __init__(self, name: str, close: Sequence[str]) -> None:
        hint = f" Did you mean {' or '.join(close)}?" if close else ""
        super().__init__(
            f"There is no model {name!r} in the catalogue and no file of that name.{hint}"
        )
        self.name = name
        self.close = tuple(close)


class ModelFileError(WeightsError):
    """A file is not a sound model.

    ``truncated`` says that it ends too early, so that more of the file might help.
    """

    def __init__(self, sentence: str, *, truncated: bool = False) -> None:
        super().__init__(sentence)
        self.truncated = truncated


class GgufError(ModelFileError):
    """The bytes are not a sound GGUF file."""


class SafetensorsError(ModelFileError):
    """The bytes are not a sound safetensors file, or the ``config.json`` beside it is not."""


class PullError(WeightsError):
    """A model file could not be fetched."""


class WrongContent(PullError):
    """Fetched bytes are not the file that was asked for; they were deleted."""


class BadReply(PullError):
    """A reply to a range request fails a check (dealing, section 8).

    ``fault`` says which; ``status`` is the HTTP status when that is the fault, else 0.
    """

    def __init__(self, fault: ReplyFault, sentence: str, *, status: int = 0) -> None:
        super().__init__(sentence)
        self.fault: ReplyFault = fault
        self.status = status


class DiskFull(PullError):
    """The cache's disk has no room for the file."""


class PullCancelled(PullError):
    """The caller's ``cancelled`` said so. A partial file stays, for the next attempt."""


class NoSource(PullError):
    """Every source failed. ``tried`` holds (source, reason) pairs in the order tried."""

    def __init__(self, what: str, tried: Sequence[tuple[str, str]]) -> None:
        listed = "; ".join(f"{source}: {reason}" for source, reason in tried)
        super().__init__(f"Could not fetch {what}. Tried {listed}.")
        self.tried = tuple(tried)
