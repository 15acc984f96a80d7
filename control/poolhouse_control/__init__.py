"""The poolhouse control plane: signaling, relay credentials, metrics."""

__version__ = "0.1.0"
