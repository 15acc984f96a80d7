"""Rules and dashboards name what the programs tell; alerts fire when they should."""

from __future__ import annotations

import copy
import re
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from typing import TYPE_CHECKING

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import generate_latest
from tools.monitoring.lint import (
    Known,
    board_expressions,
    check_board,
    check_rules,
    rule_expressions,
)
from tools.monitoring.promql import Selector, selectors, without_variables

from tests.support.monitoring import PROMETHEUS, ROOT, RULE_FILES, boards, rule_files
from tests.support.prometheus import promtool

if TYPE_CHECKING:
    from types import ModuleType

RUNBOOKS = ROOT / "docs" / "runbooks"
ALERTS = [
    rule
    for file in rule_files()
    for group in file["groups"]
    for rule in group["rules"]
    if "alert" in rule
]
TEST_FILES = sorted(PROMETHEUS.glob("tests/*.test.yml"))


@pytest.fixture(scope="module")
def known() -> Known:
    return Known.of(rule_files())


@pytest.fixture(scope="module")
def make_dashboards() -> ModuleType:
    loader = SourceFileLoader("make_dashboards", str(ROOT / "tools" / "make-dashboards"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def broken(board: dict, change) -> dict:
    """The dashboard after ``change`` of its first panel that asks something."""
    board = copy.deepcopy(board)
    panel = next(panel for panel in board["panels"] if panel["type"] != "row")
    change(board, panel)
    return board


# ---- the files ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(boards()))
def test_a_dashboard_names_what_there_is_and_explains_itself(name, known):
    assert check_board(name, boards()[name], known) == []


def test_there_are_four_dashboards_each_with_a_uid_of_its_own():
    assert {board["uid"] for board in boards().values()} == {
        "poolhouse-node", "poolhouse-overview", "poolhouse-rooms", "poolhouse-signaling",
    }  # fmt: skip
    assert len(boards()) == 4


def test_dashboards_are_what_their_tool_writes(make_dashboards, tmp_path, capsys):
    assert make_dashboards.main(["--check"]) == 0
    assert make_dashboards.main([], tmp_path) == 0
    file = tmp_path / "deploy/grafana/dashboards/poolhouse-node.json"
    file.write_text("{}")
    assert make_dashboards.main(["--check"], tmp_path) == 1
    assert "poolhouse-node.json is stale" in capsys.readouterr().err
    assert make_dashboards.main(["--force"], tmp_path) == 2


def test_targets_are_services_that_tell_metrics():
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text(encoding="utf-8"))
    services = yaml.safe_load((ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8"))[
        "services"
    ]
    targets = [
        target.split(":")
        for job in config["scrape_configs"]
        for target in job["static_configs"][0]["targets"]
    ]
    telling = {
        name: service["environment"].get("POOLHOUSE_METRICS_PORT", "9090")
        for name, service in services.items()
        if {"POOLHOUSE_METRICS_PORT", "POOLHOUSE_ADMIN_HOST"} & set(service.get("environment", ()))
    }
    assert dict(targets) == telling


def test_rules_name_what_there_is(known):
    assert check_rules(rule_files(), known) == []


def test_every_series_of_ours_is_on_a_dashboard(known):
    shown = {
        selector.name
        for board in boards().values()
        for _, expression in board_expressions(board)
        for selector in selectors(expression)
    }
    families = {f.name: f for each in known.families.values() for f in each}
    ours = {name: f for name, f in families.items() if name.startswith("poolhouse_")}
    assert {name for name, family in ours.items() if not family.samples & shown} == set()


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_an_alert_has_a_runbook_and_both_kinds_of_unit_test(rule):
    name = rule["alert"].removeprefix("Poolhouse")
    page = ROOT / rule["annotations"]["runbook_url"]
    text = page.read_text(encoding="utf-8")
    severity = rule["labels"]["severity"]
    assert text.startswith(f"# {rule['alert']}\n")
    assert f"Severity `{severity}`" in text
    assert f"| [{name}]({page.name}) | {severity} |" in (RUNBOOKS / "README.md").read_text()
    fires = {bool(case["exp_samples"]) for case in cases_of(rule["alert"])}
    assert fires == ({True} if severity == "none" else {True, False})


def cases_of(alert: str) -> list[dict]:
    files = (yaml.safe_load(path.read_text(encoding="utf-8")) for path in TEST_FILES)
    cases = (case for file in files for test in file["tests"] for case in test["promql_expr_test"])
    return [case for case in cases if f'ALERTS{{alertname="{alert}"' in case["expr"]]


def test_every_runbook_is_about_an_alert():
    pages = {path.name for path in RUNBOOKS.glob("*.md")} - {"README.md"}
    assert pages == {rule["annotations"]["runbook_url"].rpartition("/")[2] for rule in ALERTS}


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_a_runbook_names_only_series_and_labels_that_exist(rule, known):
    text = (ROOT / rule["annotations"]["runbook_url"]).read_text(encoding="utf-8")
    histograms = {family.name for each in known.families.values() for family in each}
    for code in set(re.findall(r"`([^`]*poolhouse_[^`]*)`", text)) - histograms:
        assert list(known.complaints(code)) == []


# ---- promtool -----------------------------------------------------------------------------------


@pytest.mark.prometheus
def test_promtool_takes_the_configuration():
    done = promtool("check", "config", PROMETHEUS / "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout + done.stderr
    assert promtool("check", "rules", *RULE_FILES).returncode == 0


@pytest.mark.prometheus
@pytest.mark.parametrize("path", TEST_FILES, ids=lambda path: path.name)
def test_rules_do_what_their_unit_tests_say(path):
    done = promtool("test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.prometheus
def test_every_expression_of_a_dashboard_parses(tmp_path):
    expressions = [each for board in boards().values() for each in board_expressions(board)]
    rules = [
        {"record": f"query:{number}", "expr": expression}
        for number, (_, expression) in enumerate(expressions)
    ]
    file = tmp_path / "queries.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}))
    done = promtool("check", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(expressions)} rules found" in done.stdout


@pytest.mark.prometheus
@pytest.mark.parametrize("program", ["control", "node"])
def test_promtool_finds_no_fault_with_the_series(program):
    done = promtool("check", "metrics", text=generate_latest(registry_of(program)).decode())
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def registry_of(program: str):
    if program == "control":
        from poolhouse_control.app import create_app, make_parts
        from poolhouse_control.settings import Settings

        parts = make_parts(Settings())
        create_app(parts.settings, parts)
        return parts.registry
    from poolhouse_node.cli.measuring import NodeMeasuring
    from poolhouse_node.ops.registry import make_registry

    return NodeMeasuring(make_registry("0", 4)).registry


# ---- the linter finds what is wrong -------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "complaint"),
    [
        ("poolhouse_signal_piers", "no series poolhouse_signal_piers"),
        ('poolhouse_links{kind="open"}', "has no label kind"),
        ('poolhouse_links{state="shut"}', "has no state=shut"),
        ('poolhouse_gen_total{outcome=~"stop|quit"}', "has no outcome=stop|quit"),
        ('poolhouse_lap_duration_seconds_bucket{le="3.0"}', "has no le=3.0"),
        ("job:poolhouse_gen_tokens:rate1m", "no series job:poolhouse_gen_tokens:rate1m"),
        ("sum by (job) (rate(poolhouse_gen[5m]))", "no series poolhouse_gen"),
    ],
)
def test_what_does_not_exist_is_found(expression, complaint, known):
    (said,) = known.complaints(expression)
    assert complaint in said


@pytest.mark.parametrize(
    "expression",
    [
        'poolhouse_build_info{version="9.9.9"}',
        'poolhouse_lap_duration_seconds_bucket{le="2.0", kind!~"verify"}',
        'up{job="anything"} == 1 and on (instance) job:poolhouse_gen_tokens:rate5m > 2e3',
    ],
)
def test_what_exists_is_let_through(expression, known):
    assert list(known.complaints(expression)) == []


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda board, panel: panel.update(description=""), "has no description"),
        (lambda board, panel: panel["fieldConfig"]["defaults"].pop("unit"), "has no unit"),
        (lambda board, panel: panel.update(targets=[]), "asks nothing"),
        (lambda board, panel: panel.update(datasource={"uid": "x"}), "tied to one data source"),
        (lambda board, panel: panel.update(id=1), "the panel id 1 is used twice"),
        (lambda board, panel: panel["gridPos"].update(y=2), "panels overlap"),
        (lambda board, panel: panel["gridPos"].update(w=1), "the grid has holes"),
        (lambda board, panel: panel["targets"][0].update(expr="rate(up[5m])"), "fixed range"),
        (lambda board, panel: panel["targets"][0].update(expr="poolhouse_x"), "there is no series"),
        (lambda board, panel: board.update(uid="other"), "the uid is the file's name"),
        (lambda board, panel: board.update(version=3), "no id, no version"),
        (lambda board, panel: board["templating"]["list"].pop(), "the variables are"),
    ],
)  # fmt: skip
def test_a_broken_dashboard_is_found(change, complaint, known):
    name = "poolhouse-signaling"
    assert any(
        complaint in said for said in check_board(name, broken(boards()[name], change), known)
    )


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"expr": "poolhouse_x > 1"}, "there is no series"),
        ({"labels": {"severity": "critical"}}, "has no severity"),
        ({"labels": {"severity": "page", "team": "x"}}, "has no severity, or another label"),
        ({"annotations": {"summary": "x"}}, "needs a summary"),
        ({"alert": "TooHot"}, "is not called PoolhouseWhat"),
        ({"alert": "PoolhouseStoreDown"}, "is there 2 times"),
    ],
)
def test_a_broken_alert_is_found(change, complaint, known):
    files = rule_files()
    alerts = next(file for file in files if "alert" in file["groups"][0]["rules"][0])
    alerts["groups"][0]["rules"][0].update(change)
    assert any(complaint in said for said in check_rules(files, known))


def test_a_record_of_another_name_is_found(known):
    files = [{"groups": [{"rules": [{"record": "tokens", "expr": "up"}]}]}]
    assert check_rules(files, known) == ["tokens: is not called level:metric:operation"]
    assert rule_expressions(files) == [("tokens", "up")]


# ---- reading PromQL -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("up", ["up"]),
        ("sum by (le) (rate(a_bucket[5m]))", ["a_bucket"]),
        ("a / on (job) group_left (x) b unless c offset 5m", ["a", "b", "c"]),
        ("sum(a) without (instance) > bool 1.5e3 or vector(0)", ["a"]),
        ('a{x="by (b) and [5m]", y=~"c|d"} == Inf', ["a"]),
        ("histogram_quantile(0.95, job:a:rate5m)", ["job:a:rate5m"]),
        ("quantile_over_time(0.5, a[1h:5m])", ["a"]),
    ],
)
def test_names_are_found(expression, names):
    assert [selector.name for selector in selectors(expression)] == names


def test_matchers_are_found():
    (found,) = selectors("""a{b="c", d!~'e|f', le="2.0"}""")
    assert found == Selector("a", (("b", "=", "c"), ("d", "!~", "e|f"), ("le", "=", "2.0")))


def test_variables_are_put_in():
    text = 'rate(a{job=~"$job"}[$__rate_interval])'
    assert without_variables(text, "30s") == 'rate(a{job=~".*"}[30s])'


@given(st.text(alphabet="ab{}[]()\"'\\=~!,: by5m|", max_size=60))
def test_any_text_is_read_to_its_end(text):
    assert all(selector.name for selector in selectors(text))
