"""A peer that only says what a test tells it to, and remembers what it hears."""

from poolhouse_node.rtc.network import Network
from tests.support.simulation import SimRoom


class Speaker:
    """A peer that only says what it is told to, and remembers what it hears."""

    def __init__(self) -> None:
        self.heard: list[dict] = []

    def link_opened(self, link) -> None:
        """It does not greet."""

    def message(self, link, message) -> None:
        self.heard.append(message)

    def frame(self, link, frame) -> None:
        self.heard.append({"t": "frame"})

    def link_closed(self, link, reason) -> None:
        """It does not mind."""

    def signaling_changed(self, *, connected: bool) -> None:
        """Nor this."""


def speaker_in(room: SimRoom, peer_id: str | None = None):
    network, speaker = Network(room.net.dialer(peer_id)), Speaker()
    network.listen(speaker)
    return network, speaker
