"""Records of hosted rooms for tests, and a host's choices."""

from poolhouse_node.cli.host import HostOptions
from poolhouse_node.cli.rooms import Place
from poolhouse_node.generate.sampler import Sampling
from poolhouse_node.room.record import RecordedOptions, RoomMemory, RoomRecord
from poolhouse_node.rtc.relays import Relays

CODE = "4TKG9P"
SERVERS = ("desk.lan:8080",)
RELAYS = Relays()


def choices(code: str = CODE, **other) -> RecordedOptions:
    known = {
        "servers": list(SERVERS),
        "host_name": "attic",
        "model": "smollm2-135m",
        "model_key": "smollm2-135m",
        "max_tokens": 400,
        "temperature": 0.0,
        "top_k": 40,
    }
    return RecordedOptions(code=code, **known | other)


def kept(saved_at: float = 1000.0, memory: RoomMemory | None = None, **other) -> RoomRecord:
    return RoomRecord(saved_at=saved_at, options=choices(**other), memory=memory or RoomMemory())


def host_options(**said) -> HostOptions:
    """Defaults, but for what a person says; ``servers`` is where devices meet."""
    place = Place(said.pop("servers", ["localhost:8080"]), "libdatachannel", relays=RELAYS)
    known = {"model": "smollm2-135m", "sampling": Sampling(0.0, 40), "max_tokens": 400}
    return HostOptions(**{"place": place} | known | said)
