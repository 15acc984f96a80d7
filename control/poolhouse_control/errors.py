"""Everything the control plane raises of its own.

``ControlError``
    ``SettingsError``        a setting that cannot be used; the text says which and why
    ``ListenError``          an address that cannot be listened on
        ``PortInUse``        another program holds the port
    ``FrameError``           a frame from a signaling client
        ``BadFrame``         not a JSON object: counted against the socket
        ``IgnoredFrame``     an object that asks nothing of a signaling server
    ``RelayUnavailable``     the relay provider has no credentials to give
    ``StoreAway``            the shared store does not answer
"""

from __future__ import annotations

__all__ = [
    "BadFrame",
    "ControlError",
    "FrameError",
    "IgnoredFrame",
    "ListenError",
    "PortInUse",
    "RelayUnavailable",
    "SettingsError",
    "StoreAway",
]


class ControlError(Exception):
    """Root of the tree. Its text is one sentence for people."""


class SettingsError(ControlError):
    """A setting cannot be used."""


class ListenError(ControlError):
    """An address cannot be listened on."""

    def __init__(self, host: str, port: int, text: str) -> None:
        super().__init__(text)
        self.host = host
        self.port = port


class PortInUse(ListenError):
    """Another program already listens on the port."""

    def __init__(self, host: str, port: int, setting: str) -> None:
        text = (
            f"Port {port} on {host} is in use by another program: "
            f"stop that program, or choose another port with {setting}."
        )
        super().__init__(host, port, text)
        self.setting = setting


class FrameError(ControlError):
    """A frame of a signaling client that is not acted on."""


class BadFrame(FrameError):
    """The frame is not a JSON object."""


class IgnoredFrame(FrameError):
    """The frame is an object, but its type or members ask nothing of us."""


class RelayUnavailable(ControlError):
    """A relay provider is configured, but it has no usable credentials to give."""


class StoreAway(ControlError):
    """The presence store does not answer, or has not of late."""
