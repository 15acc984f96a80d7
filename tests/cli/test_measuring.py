"""What a command measures of its rooms, and that without a port it measures nothing."""

from __future__ import annotations

import builtins
import contextlib
from types import SimpleNamespace

import httpx
import pytest

from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.cli.loading import EngineLoader
from poolhouse_node.cli.measuring import Measuring, MetricsOptions, NodeMeasuring, measuring
from poolhouse_node.device import events as ev
from poolhouse_node.device.answer_record import Outcome
from poolhouse_node.device.joined import JoinFailed, JoinRefused
from poolhouse_node.ops.measured import MeasuredShard
from poolhouse_node.ops.registry import make_registry
from poolhouse_node.rtc.counts import LinkCounts
from poolhouse_node.rtc.signaling import SignalingError
from poolhouse_node.shard import OutOfMemory, ShardError
from poolhouse_node.weights.errors import WeightsError
from tests.support.fake_model import FakeLoader

CODE = "4TKG9P"


@pytest.fixture
def node() -> NodeMeasuring:
    return NodeMeasuring(make_registry("0", 4))


def value(node: NodeMeasuring, name: str, **labels: str) -> float | None:
    return node.registry.get_sample_value(f"poolhouse_{name}", labels)


def network(*links: SimpleNamespace) -> SimpleNamespace:
    by_id = {str(number): link for number, link in enumerate(links)}
    return SimpleNamespace(links=by_id, counts=lambda: LinkCounts(frames_sent=4))


def link(*, is_open=True, admitted=True, is_relayed=False) -> SimpleNamespace:
    return SimpleNamespace(
        is_open=is_open, admitted=admitted, is_relayed=is_relayed, buffered_bytes=3
    )


def host(*links: SimpleNamespace) -> SimpleNamespace:
    return SimpleNamespace(
        shares=[ev.Share("host", 0, 10, 0.1)], questions_waiting=2,
        network=network(*links), identity=SimpleNamespace(meta={"contribGB": 2}),
    )  # fmt: skip


def joined(layers: tuple[int, int] | None = (10, 20)) -> SimpleNamespace:
    return SimpleNamespace(
        worker=SimpleNamespace(layers=layers), is_inside=True,
        network=network(link()), lends_gb=3.0,
    )  # fmt: skip


def test_events_go_on_to_the_person(node):
    shown = []
    for measured in (node, Measuring()):
        measured.room(shown.append)(ev.Notice("hello"))
    assert shown == [ev.Notice("hello")] * 2


def test_an_answer_is_counted(node):
    room = node.room(lambda event: None)
    for gap_s in (None, 0.02, 0.04):
        room(ev.TokenMade(gap_s))
    room(ev.AnswerResumed())
    room(ev.AnswerMeasured(Outcome.LINK_LOST, 1.5, 3.0, 8.0, 100, 3))
    room(ev.AnswerMeasured(Outcome.ERROR, 0.0, None, 1.0, 0, 0))
    assert value(node, "gen_tokens_total", kind="answer") == 3
    assert value(node, "gen_tokens_total", kind="prompt") == 100
    assert value(node, "gen_total", outcome="link_lost") == 1
    assert value(node, "gen_total", outcome="error") == 1
    assert value(node, "gen_inter_token_seconds_sum") == pytest.approx(0.06)
    assert value(node, "gen_time_to_first_token_seconds_count") == 1
    assert value(node, "gen_queue_seconds_sum") == 1.5
    assert value(node, "gen_resumed_total") == 1


def test_laps_and_pings_are_counted(node):
    room = node.room(lambda event: None)
    room(ev.LapReturned("token", 0.03))
    room(ev.LapReturned("prefill", 0.3))
    room(ev.LapTimedOut("verify"))
    room(ev.PingAnswered(0.004))
    assert value(node, "lap_duration_seconds_sum", kind="decode") == 0.03
    assert value(node, "lap_duration_seconds_count", kind="prefill") == 1
    assert value(node, "lap_timeouts_total", kind="verify") == 1
    assert value(node, "link_rtt_seconds_bucket", le="0.005") == 1


def test_a_host_is_read(node):
    room = node.room(lambda event: None)
    links = (link(), link(is_relayed=True), link(admitted=False), link(is_open=False))
    with room.hosting(host(*links), CODE):
        states = {state: value(node, "links", state=state) for state in ("open", "held", "relayed")}
        assert states == {"open": 2, "held": 1, "relayed": 1}
        assert value(node, "room_role", role="host") == 1
        assert value(node, "room_seat_layers") == 10
        assert value(node, "gen_queue_length") == 2
        assert value(node, "gen_queue_limit") == 10
        assert value(node, "engine_pledge_bytes") == 2 * 2**30
        assert value(node, "link_send_buffered_bytes") == 9
        room(ev.SignalingChanged(connected=False))
        assert value(node, "room_signaling_connected") == 0
    assert value(node, "room_joins_total", outcome="joined") == 1
    assert value(node, "room_connected") == 0


def test_a_hosts_devices_and_deals_are_counted(node):
    room = node.room(lambda event: None)
    with room.hosting(host(), CODE):
        for event in (
            ev.DeviceJoined("attic", "computer"), ev.DeviceLeft("attic", "left"),
            ev.DeviceLeft("cellar", "stopped responding"), ev.DeviceLeft("x", "said nothing"),
            ev.Dealt("m", (), ()), ev.Dealt("m", (), ()), ev.Dealt("m", (), ()),
        ):  # fmt: skip
            room(event)
    assert value(node, "room_devices_joined_total") == 1
    left = ("left", "silent", "link_lost", "other")
    counts = [value(node, "room_devices_left_total", reason=reason) for reason in left]
    assert counts == [1, 1, 0, 1]
    assert value(node, "deals_total", cause="first") == 1
    assert value(node, "deals_total", cause="again") == 2


@pytest.mark.parametrize(("layers", "role"), [((10, 20), "worker"), (None, "guest")])
def test_a_joined_device_is_read(node, layers, role):
    with node.room(lambda event: None).joining(joined(layers), CODE):
        assert value(node, "room_role", role=role) == 1
        assert value(node, "room_connected") == 1
        assert value(node, "engine_pledge_bytes") == 3 * 2**30


@pytest.mark.parametrize(
    ("verb", "cause"),
    [
        ("left", "host_left"),
        ("stopped responding", "host_silent"),
        ("lost its connection", "link_lost"),
        ("said nothing", "link_lost"),
    ],
)
def test_a_return_counts_with_its_cause(node, verb, cause):
    room = node.room(lambda event: None)
    with room.joining(joined(), CODE):
        room(ev.HostLost(verb))
        room(ev.HostFound())
        room(ev.HostFound())
        room(ev.Dealt("", (), ()))
    assert value(node, "room_rejoins_total", cause=cause) == 1
    assert value(node, "deals_total", cause="first") == 0, "a deal is the host's"


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (JoinRefused("no"), "refused"),
        (JoinFailed("nobody there"), "failed"),
        (SignalingError("lost", "no server"), "failed"),
        (None, "joined"),
    ],
)
def test_attempts_to_join_are_counted(node, error, outcome):
    with contextlib.suppress(JoinFailed, SignalingError), node.room(print).trying():
        if error:
            raise error
    counts = {each: value(node, "room_joins_total", outcome=each) for each in node.metrics.joins}
    assert counts == {each: float(each == outcome) for each in node.metrics.joins}


def test_a_measured_loader_says_where_it_computes(node):
    loader = EngineLoader(store=None, device="cuda:1")
    assert node.loader(loader).device == "cuda:1"


async def load(node: NodeMeasuring, loader: FakeLoader):
    return await node.loader(loader).load(
        "fake", (0, 4), context_size=64, host=False, progress=lambda share: None
    )


async def test_loads_and_what_they_hold_are_measured(node):
    shard = await load(node, FakeLoader())
    assert isinstance(shard, MeasuredShard)
    shard._shard.held_bytes = 123
    assert value(node, "model_load_seconds_count") == 1
    assert value(node, "engine_memory_bytes", use="weights") == 123
    shard.close()
    assert value(node, "engine_memory_bytes", use="weights") == 0
    info = next(m for m in node.registry.collect() if m.name == "poolhouse_node_info")
    assert info.samples[0].labels["device"] == "cpu"


class FailingLoader(FakeLoader):
    error: ShardError

    async def load(self, *args, **kwargs):
        raise self.error


@pytest.mark.parametrize(
    ("error", "cause", "fetches", "ooms"),
    [
        (ShardError("no file"), WeightsError("no file"), 1, 0),
        (OutOfMemory("too little"), None, 0, 1),
        (ShardError("broken"), None, 0, 0),
    ],
)
async def test_loads_that_fail_are_counted_by_their_reason(node, error, cause, fetches, ooms):
    error.__cause__ = cause
    loader = FailingLoader()
    loader.error = error
    with pytest.raises(ShardError, match=str(error)):
        await load(node, loader)
    assert value(node, "model_load_errors_total") == 1
    assert value(node, "model_fetch_errors_total") == fetches
    assert value(node, "engine_errors_total", kind="oom") == ooms


def test_files_are_counted_by_where_they_were(node):
    node.found("cache", 100)
    node.found("network", 7)
    assert value(node, "model_fetch_bytes_total", source="cache") == 100
    assert value(node, "model_fetch_bytes_total", source="network") == 7


async def test_a_port_tells_metrics_and_health():
    said = []
    async with measuring(MetricsOptions(port=0), said.append) as node:
        url = said[0].removeprefix("Metrics: ")
        async with httpx.AsyncClient(trust_env=False) as client:
            assert "poolhouse_build_info" in (await client.get(url)).text
            assert (await client.get(url.replace("metrics", "readyz"))).status_code == 503
            with node.room(print).joining(joined(), CODE):
                assert (await client.get(url.replace("metrics", "readyz"))).status_code == 200


async def test_a_room_is_named_where_that_is_wanted():
    async with measuring(MetricsOptions(port=0, names_room=True), lambda line: None) as node:
        with node.room(print).joining(joined(), CODE):
            names = {s.labels.get("room") for m in node.registry.collect() for s in m.samples}
            assert len(names) == 2  # none, of the process, and the room's
            assert CODE not in names


async def test_without_a_port_nothing_is_measured():
    async with measuring(MetricsOptions(), print) as measured:
        loader, notify = FakeLoader(), [].append
        assert measured.loader(loader) is loader
        room = measured.room(notify)
        with room.trying(), room.hosting(host(), CODE), room.joining(joined(), CODE):
            measured.found("cache", 1)


async def test_a_missing_client_is_a_sentence(monkeypatch):
    real = builtins.__import__

    def no_client(name, *args, **kwargs):
        if name.startswith("poolhouse_node.ops"):
            raise ModuleNotFoundError(
                "No module named 'prometheus_client'", name="prometheus_client"
            )
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", no_client)
    with pytest.raises(CommandFailed, match="prometheus_client"):
        async with measuring(MetricsOptions(port=0), print):
            pass


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        (MetricsOptions(), []),
        (MetricsOptions(port=0), []),
        (
            MetricsOptions(9101, "::", names_room=True),
            ["--metrics-port", "9103", "--metrics-bind", "::", "--metrics-room-label"],
        ),
    ],
)
def test_processes_beside_this_one_take_the_ports_after_it(options, arguments):
    assert options.arguments(2) == arguments
