"""When the search for own addresses is cut short."""

import pytest

from poolhouse_node.rtc.gathering import is_gathered_enough
from poolhouse_node.rtc.peer import IceSettings, TurnServer

HOST = "a=candidate:1 1 UDP 1 192.0.2.1 5000 typ host\r\n"
RELAY = "a=candidate:2 1 UDP 1 192.0.2.9 6000 typ relay raddr 0.0.0.0 rport 0\r\n"
NONE = IceSettings()
TURN = IceSettings(turn=(TurnServer("turn:r", "u", "c"),))


@pytest.mark.parametrize(
    ("sdp", "ice", "from_s"),
    [
        ("", NONE, 15),
        (HOST, NONE, 3),
        ("", TURN, 15),
        (HOST, TURN, 5),
        (RELAY, TURN, 3),
        (HOST + RELAY, TURN, 3),
    ],
)
def test_the_fewer_addresses_the_longer_it_goes_on(sdp, ice, from_s):
    assert not is_gathered_enough(sdp, from_s - 0.01, ice)
    assert is_gathered_enough(sdp, from_s, ice)
