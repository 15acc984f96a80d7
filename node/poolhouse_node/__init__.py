"""The poolhouse node: a headless device that hosts a room, holds layers in one, or asks it."""

__version__ = "0.1.0"
