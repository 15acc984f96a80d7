"""The errors of this package.

::

    ValueError
      WireError         a peer sent, or a caller asked to encode, something the wire cannot carry
    Exception
      ChannelRefused    a local channel did not take a message; another one may
"""

from __future__ import annotations

__all__ = ["ChannelRefused", "WireError"]


class WireError(ValueError):
    """Bytes, a message or a frame that breaks the protocol.

    Raised for input of a peer (drop the message, keep the link) and for a value that a caller
    wants to encode (a fault on this side). No other exception leaves the decoders.
    """


class ChannelRefused(Exception):
    """A channel that looked open did not take a message.

    Raised by implementations of :class:`~poolhouse_node.wire.sending.WireChannel`.
    """
