"""Names and what is kept of a device's own words."""

import pytest

from poolhouse_node.room.roster import (
    Member,
    Roster,
    clean_meta,
    clean_name,
    device_label,
    namesake_to_probe,
    renamed,
    silent_namesakes,
    unique_name,
)
from poolhouse_node.wire.messages import joining, to_map
from tests.support.vectors import cases, vectors

CODES = vectors("codes")
LIVENESS = vectors("liveness")


@pytest.mark.parametrize("case", cases(CODES["names"]))
def test_names_are_cleaned(case):
    assert clean_name(case["name"], case["id"]) == case["clean"]


@pytest.mark.parametrize("case", cases(CODES["unique_names"], "given"))
def test_names_are_unique(case):
    others = [name for peer_id, name in case["roster"] if peer_id != case["id"]]
    assert unique_name(case["name"], [case["host_name"], *others]) == case["given"]


@pytest.mark.parametrize("case", cases(CODES["hello_meta"]))
def test_meta_is_cleaned(case):
    assert clean_meta(case["meta"], on_host=case["on_host"]) == case["kept"]


@pytest.mark.parametrize("meta", [None, 5, "x", [1]])
def test_meta_that_is_no_map_is_empty(meta):
    assert clean_meta(meta, on_host=True) == {}


@pytest.mark.parametrize("case", cases(CODES["device_label"], "label"))
def test_device_labels(case):
    assert device_label(case["meta"]) == case["label"]


def test_the_roster_keeps_the_order_of_joining_and_numbers_namesakes():
    roster = Roster()
    roster.add(Member("h", "otter", {"webgpu": True}, proves_links=True))
    roster.add(Member("a", "otter", {"webgpu": True}))
    entries = to_map(roster.to_message())["members"]
    assert [entry["name"] for entry in entries] == ["otter", "otter 2"]
    assert [entry.get("a") for entry in entries] == [1, None]
    roster.remove("a")
    assert roster.name_of("a") == "a"
    assert len(roster.members) == 1


@pytest.mark.parametrize(
    ("meta", "holds"),
    [({"webgpu": True}, True), ({"webgpu": True, "api": 1}, False), ({}, False)],
)
def test_who_may_hold_layers(meta, holds):
    assert Member("a", "a", meta).holds_layers is holds


@pytest.mark.parametrize("case", cases(LIVENESS["namesakes"]))
def test_namesakes_are_probed(case):
    members = [Member(peer_id, name, {}) for peer_id, name in case["roster"]]
    name, peer_id, now = case["name"], case["id"], case["now"]
    heard_at = {key: at / 1000 for key, at in case["heard"].items()}
    assert namesake_to_probe(members, name, peer_id, heard_at, now / 1000) == case["probe"]
    silent = silent_namesakes(members, name, peer_id, heard_at, now / 1000)
    assert silent == case["stale_if_pinged_at_now"]


def test_who_comes_back_has_every_namesake_probed():
    members = [Member("old", "otter", {})]
    assert namesake_to_probe(members, "otter", "new", {"old": 9.9}, 10.0) is None
    assert namesake_to_probe(members, "otter", "new", {"old": 9.9}, 10.0, is_back=True) == "old"


@pytest.mark.parametrize("case", cases(LIVENESS["rename"], "rename_to"))
def test_the_host_gives_names(case):
    members = [joining.Member(id=m["id"], name=m["name"]) for m in case["members"] or []]
    given = renamed(members, case["self"], case["my_name"], from_host=case["from_host"])
    assert given == case["rename_to"]


def test_a_deal_keeps_former_seats_then_goes_by_name():
    roster = Roster()
    roster.add(Member("h", "host", {"webgpu": True}))
    for name in ("wren", "asp", "bee", "cat"):
        roster.add(Member(name[0], name, {"webgpu": name != "cat"}))
    assert [m.name for m in roster.order_for_deal([])] == ["host", "asp", "bee", "wren"]
    assert [m.name for m in roster.order_for_deal(["wren", "gone", "bee"])] == [
        *("host", "wren", "bee", "asp")
    ]
