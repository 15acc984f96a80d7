"""Names of objects: within Kubernetes' bounds, and different whenever their releases are."""

import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from poolhouse_node.room.names import NAME_CHARACTERS, fit_name
from tests.support.chart import SCENARIOS, Refused, of_kind, render, scenario

pytestmark = pytest.mark.slow

LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
RELEASE = st.from_regex(r"[a-z]([-a-z0-9]{0,51}[a-z0-9])?", fullmatch=True)
POOL = st.from_regex(r"[a-z]([-a-z0-9]{0,18}[a-z0-9])?", fullmatch=True)
RESERVED = {"control", "host", "relay", "rules", "node"}
MOST_PODS = 999
VERSIONED = {"helm.sh/chart", "app.kubernetes.io/version"}


def pool_of(name: str) -> dict:
    return {"nodes": {"pools": {name: {"pledgeGB": 1, "roomSecret": {"name": "room"}}}}}


def device_sets(values: dict, release: str) -> list[str]:
    return [each["metadata"]["name"] for each in of_kind(render(values, release), "StatefulSet")]


def keys(values: dict, release: str) -> set[tuple[str, str]]:
    return {(each["kind"], each["metadata"]["name"]) for each in render(values, release)}


@given(RELEASE, POOL)
@settings(max_examples=30, deadline=None)
def test_a_pod_is_called_as_its_device_whatever_the_release_is_called(release, pool):
    assume(pool not in RESERVED)
    (name,) = device_sets(pool_of(pool), release)
    assert LABEL.fullmatch(name)
    last_pod = f"{name}-{MOST_PODS}"
    assert len(last_pod) <= NAME_CHARACTERS
    assert fit_name(last_pod) == last_pod


@given(st.lists(st.tuples(RELEASE, POOL), unique=True, min_size=2, max_size=3))
@settings(max_examples=10, deadline=None)
def test_no_two_pools_share_a_name(pairs):
    assume(not RESERVED & {pool for _, pool in pairs})
    names = {pair: device_sets(pool_of(pair[1]), pair[0])[0] for pair in pairs}
    plain = [f"{release}-poolhouse-{pool}" for release, pool in pairs]
    assume(len(set(plain)) == len(plain))  # the release a-b with pool c, and a with b-poolhouse-c
    assert len(set(names.values())) == len(names)


def test_pools_that_differ_behind_the_cut_stay_apart():
    release = "r" * 40
    assert device_sets(pool_of("one"), release) != device_sets(pool_of("two"), release)
    assert device_sets(pool_of("one"), release) == device_sets(pool_of("one"), release)


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize(
    ("one", "other"),
    [("demo", "demo-2"), ("a", "a-poolhouse"), ("poolhouse", "poolhouse-poolhouse"), ("a.b", "a-b"),
     ("r" * 52 + "1", "r" * 52 + "2")],
)  # fmt: skip
def test_two_releases_in_one_namespace_do_not_collide(name, one, other):
    values = {**scenario(name), "extraObjects": []}
    assert not keys(values, one) & keys(values, other)


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("release", ["a", "r" * 53])
def test_names_fit(name, release):
    for kind, object_name in keys(scenario(name), release):
        limit = 36 if kind == "StatefulSet" else 63
        assert LABEL.fullmatch(object_name), object_name
        assert len(object_name) <= limit


def test_full_names_are_honoured_everywhere():
    values = {**scenario("host-room"), "fullnameOverride": "desk"}
    objects = render(values)
    assert all(each["metadata"]["name"].startswith("desk") for each in objects)
    assert "demo-" not in str([each.get("spec") for each in objects])


@pytest.mark.parametrize("release", ["1", "1.a"])
def test_a_release_that_no_service_can_be_called_after_is_a_sentence(release):
    with pytest.raises(Refused, match="begins with a digit"):
        render({}, release)
    assert render({"fullnameOverride": "desk"}, release)


@pytest.mark.parametrize("pool", sorted(RESERVED))
def test_a_pool_is_not_called_as_a_part_of_the_chart(pool):
    with pytest.raises(Refused, match="Call the pool something else"):
        render(pool_of(pool))


@pytest.mark.parametrize("pool", ["Gpu", "1gpu", "gpu_1", "g" * 21, ""])
def test_a_pool_that_no_object_can_be_called_after_is_refused(pool):
    with pytest.raises(Refused, match="pools"):
        render(pool_of(pool))
