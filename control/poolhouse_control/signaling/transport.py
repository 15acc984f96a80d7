"""uvicorn's WebSocket protocol, with a short path for messages and two ends ASGI has no words for.

*Short path.* Nearly every frame is a whole text message that is relayed at once. Such a frame goes
straight from the connection to who ``listen``s, and one to a client straight to the transport:
ASGI's queues, tasks and events cost several times what the relay itself does. Every other frame
(fragments, control frames, what breaks the rules) takes uvicorn's way.

*Cut.* A close waits until everything written before it was read. A client that never reads, or a
dead path with data on the way, would hold its connection until TCP gives up.

*Farewell.* After a close uvicorn drops what the client had sent before it saw that close. A client
that is sent to another replica in the middle of its work must not lose those messages.
"""

from __future__ import annotations

from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.protocol import State

from poolhouse_control.signaling.frames import (
    CLOSE,
    WHOLE_TEXT,
    is_fragment,
    measure,
    text_frame,
    unmasked,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from websockets.http11 import Request

__all__ = ["Heard", "SignalingProtocol", "wire_of"]

_WIRE: Final = "poolhouse.wire"
_CLOSE_INVALID_TEXT: Final = 1007


class Heard(Enum):
    """What became of a message."""

    DONE = auto()
    UNDER_WAY = auto()
    """The ones after it wait until who heard it calls ``go_on``."""
    LEFT = auto()
    """The application has something to do first; then it calls ``go_on``."""


class SignalingProtocol(WebSocketsSansIOProtocol):
    """The sans-I/O backend; the application finds it in its scope (``wire_of``)."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._hear: Callable[[str | bytes], Heard] | None = None
        self._drained: Callable[[], None] | None = None
        self._rest = b""
        """Bytes that have come and are not a whole frame yet, or nobody listens yet."""
        self._splits = False
        """Whether frames are told apart here. uvicorn's parser then only sees whole ones."""
        self._in_message = False
        self._held: deque[str | bytes] | None = None
        """Messages that wait for ``go_on``. Once one does, reading is paused: one read's at most.

        Not before: two system calls for each message that has to be asked about add up.
        """

    # Opening

    def handle_connect(self, event: Request) -> None:
        """Begin the handshake. The application's task starts after this returns."""
        super().handle_connect(event)
        scope = getattr(self, "scope", None)  # a refused handshake has none
        if scope is not None:
            scope["extensions"][_WIRE] = self

    async def send(self, message: Any) -> None:
        """Take an event from the application."""
        await super().send(message)
        if message["type"] == "websocket.http.response.body" and self.close_sent:
            # Refused in order. uvicorn would log an error each time: the handshake ends here too.
            self.handshake_complete = True

    def listen(self, hear: Callable[[str | bytes], Heard], drained: Callable[[], None]) -> None:
        """Take the short path from now on. To be called once the handshake was accepted.

        ``hear`` is given every message, one after another (``Heard``).
        ``drained`` is called whenever the transport has room again.
        """
        self._hear, self._drained = hear, drained
        self._splits = True
        self._split(self._rest)
        if self._held is None:
            self._read_on()

    # Reading

    def data_received(self, data: bytes) -> None:
        """Tell frames apart, and hand each to who reads it."""
        if self._splits:
            self._split(self._rest + data if self._rest else data)
        elif self.handshake_initiated and self._hear is None:
            self._rest += data  # behind the handshake's head: it waits for listen()
            self._pause()
        else:
            super().data_received(data)

    def _split(self, data: bytes) -> None:
        at = 0
        while (extent := measure(data, at)) is not None:
            start, size = extent
            if not 0 <= size <= self.config.ws_max_size:
                self._leave_to_parser(data[at:])  # which says why it closes
                return
            end = start + size
            if end > len(data):
                break
            first = data[at]
            if first == WHOLE_TEXT and not self._in_message:
                self._take_message(unmasked(data, extent), is_text=True)
            elif first == CLOSE:
                self._leave_to_parser(data[at:])
                return
            else:
                self._in_message = is_fragment(first, in_message=self._in_message)
                super().data_received(data[at:end])
                if self.conn.parser_exc is not None:  # it broke the rules; the end is near
                    return
            at = end
        self._rest = data[at:]

    def _leave_to_parser(self, data: bytes) -> None:
        """Nothing that comes now will be relayed."""
        self._rest, self._splits = b"", False
        super().data_received(data)

    def send_receive_event_to_app(self) -> None:
        """Take a message that uvicorn's parser put together."""
        data, self.frames = b"".join(self.frames), []
        self._take_message(data, is_text=self.curr_msg_data_type == "text")

    def _take_message(self, data: bytes, *, is_text: bool) -> None:
        if self.close_sent:
            return
        try:
            message = data.decode() if is_text else data
        except UnicodeDecodeError:
            self.close(_CLOSE_INVALID_TEXT)
            return
        if self._held is not None:
            self._held.append(message)
            self._pause()
        elif self._hear is not None and (heard := self._hear(message)) is not Heard.DONE:
            self._hold(heard)

    def _hold(self, heard: Heard) -> None:
        self._held = self._held or deque()
        if heard is Heard.LEFT:
            self.wake()

    def wake(self) -> None:
        """Give the application an empty event: there is something left for it to do."""
        self.queue.put_nowait({"type": "websocket.receive", "text": ""})

    async def receive(self) -> Any:
        """Give the application its next event. Reading goes on with ``go_on``, not with this."""
        return await self.queue.get()

    def go_on(self) -> None:
        """Hear the messages that waited, then read on."""
        while self._held and self._hear is not None:
            heard = self._hear(self._held.popleft())
            if heard is not Heard.DONE:
                self._hold(heard)
                return
        self._held = None
        self._read_on()

    def _pause(self) -> None:
        if not self.read_paused and not self.transport.is_closing():
            self.read_paused = True
            self.transport.pause_reading()

    def _read_on(self) -> None:
        if self.read_paused and not self.transport.is_closing():
            self.read_paused = False
            self.transport.resume_reading()

    # Writing

    @property
    def is_writable(self) -> bool:
        """Whether the transport has room."""
        return self.writable.is_set()

    def send_text(self, text: str) -> None:
        """Write a message, unless the connection is ending."""
        if self.conn.state is State.OPEN and not self.transport.is_closing():
            self.transport.write(text_frame(text.encode()))

    def resume_writing(self) -> None:
        """Hear from the transport that it has room again."""
        super().resume_writing()
        if self._drained is not None:
            self._drained()

    # Ending

    def close(self, code: int) -> None:
        """Write a close frame. Whatever comes now is dropped; the application is told at once."""
        if self.close_sent or self.transport.is_closing():
            return
        self._say_goodbye(code)
        self.close_sent = True
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code})
        self._read_on()  # to the client's own close frame
        self.close_timer = self.loop.call_later(self.close_timeout, self.transport.close)

    def farewell(self, code: int) -> None:
        """Write a close frame and go on reading: the answer to it ends the connection."""
        self.stop_keepalive()
        self._say_goodbye(code)

    def _say_goodbye(self, code: int) -> None:
        if self.conn.state is State.OPEN and not self.transport.is_closing():
            self.conn.send_close(code)
            self.transport.write(b"".join(self.conn.data_to_send()))

    def abort(self) -> None:
        """Cut the connection without a word."""
        self.transport.abort()

    def shutdown(self) -> None:
        """Close for the end of the server. uvicorn would say goodbye a second time."""
        if self.handshake_complete and not self.close_sent and self.conn.state is not State.OPEN:
            self.queue.put_nowait({"type": "websocket.disconnect", "code": 1012})
            self.transport.close()
        else:
            super().shutdown()

    def keepalive_timeout(self) -> None:
        """Cut the connection: who does not answer pings will not read a close either."""
        super().keepalive_timeout()
        self.transport.abort()


def wire_of(scope: Mapping[str, Any]) -> SignalingProtocol:
    """Return the connection of an application's scope. Signaling needs no other server's."""
    wire: SignalingProtocol = scope["extensions"][_WIRE]
    return wire
