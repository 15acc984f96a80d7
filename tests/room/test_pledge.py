"""Pledges as the host counts them, and after deaths, against the vectors of liveness."""

import pytest

from poolhouse_node.room.pledge import (
    PledgeRule,
    pledge_after_load_death,
    pledge_gb,
    pledge_rule,
)
from poolhouse_node.room.roster import Member
from tests.support.vectors import cases, vectors

LIVENESS = vectors("liveness")


@pytest.mark.parametrize("case", cases(LIVENESS["load_death"]))
def test_after_a_death_while_loading(case):
    share_gb = pledge_after_load_death(
        layers=case["layers"],
        layer_gb=case["layer_gb"],
        share_gb=case["share_gb"],
        deaths=case["deaths"],
    )
    assert share_gb == (None if case["drop"] else case["gb"])


@pytest.mark.parametrize("case", cases(LIVENESS["pledge"]))
def test_what_a_device_lends(case):
    assert pledge_gb(case["meta"], case["host_cap_gb"]) == case["gb"]
    assert Member("id", "otter", case["meta"], most_gb=case["host_cap_gb"]).pledge_gb == case["gb"]


@pytest.mark.parametrize("most_gb", [None, 0.5, 0.0])
def test_a_member_that_may_be_dealt_nothing_holds_no_layers(most_gb):
    member = Member("id", "otter", {"webgpu": True}, most_gb=most_gb)
    assert member.holds_layers == (most_gb != 0)


@pytest.mark.parametrize("case", cases(LIVENESS["pledge_rule"], "kind"))
def test_what_each_kind_of_device_may_lend(case):
    assert pledge_rule(case["kind"], case["device_memory_gb"]) == PledgeRule(
        case["min"], case["default"], case["max"], case["step"], is_capped=case["capped"]
    )
