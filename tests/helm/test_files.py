"""What of the chart is made from other files is up to date."""

import sys
import tarfile
import tomllib
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import helm_python
import pytest
import yaml

from tests.support.chart import CHART, ROOT, of_kind, render, scenario


def tool(name: str) -> ModuleType:
    """A program of tools/ as a module."""
    loader = SourceFileLoader(name.replace("-", "_"), str(ROOT / "tools" / name))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, loader.name, module)  # dataclasses look their module up
        loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def make() -> ModuleType:
    return tool("make-chart-files")


@pytest.fixture
def copy(tmp_path):
    """The chart and what it is made from, elsewhere."""
    for folder in ("helm", "deploy"):
        for source in (ROOT / folder).rglob("*"):
            if source.is_file():
                target = tmp_path / source.relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(source.read_bytes())
    return tmp_path


def test_every_file_is_as_it_is_made(make):
    stale = [path for path, text in make.files().items() if (ROOT / path).read_text() != text]
    assert not stale, f"run .venv/bin/python tools/make-chart-files: {stale}"
    assert not make.left_over()


def test_the_check_says_which_file_is_stale_and_writes_nothing(make, copy, capsys):
    assert make.main(["--check"], copy) == 0
    readme = copy / "helm" / "poolhouse" / "README.md"
    readme.write_text("old\n")
    assert make.main(["--check"], copy) == 1
    assert "README.md" in capsys.readouterr().err
    assert readme.read_text() == "old\n"
    assert make.main([], copy) == 0
    assert make.main(["--check"], copy) == 0


def test_rules_and_dashboards_are_copies_and_those_without_an_original_go(make, copy):
    rules = copy / "deploy" / "prometheus" / "rules"
    rules.mkdir(parents=True, exist_ok=True)
    (rules / "more.yml").write_text("groups: []\n")
    dashboard = copy / "helm" / "poolhouse" / "files" / "dashboards" / "gone.json"
    dashboard.parent.mkdir(parents=True, exist_ok=True)
    dashboard.write_text("{}")
    assert make.main(["--check"], copy) == 1
    assert make.main([], copy) == 0
    copied = copy / "helm" / "poolhouse" / "files" / "rules" / "more.yml"
    assert copied.read_text() == "groups: []\n"
    assert not dashboard.exists()


def test_other_arguments_are_a_wrong_use(make, tmp_path):
    assert make.main(["--force"], tmp_path) == 2


def test_the_chart_has_the_version_of_the_program():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert chart["version"] == chart["appVersion"] == version


def test_every_value_has_a_row_in_the_readme_and_most_a_word():
    rows = [line.split(" | ") for line in (CHART / "README.md").read_text().splitlines()
            if line.startswith("| `")]  # fmt: skip
    assert len(rows) > 200
    assert {"| `control.replicas`", "| `nodes.defaults.gpu.count`"} <= {row[0] for row in rows}


def test_rules_and_dashboards_reach_the_cluster_unchanged():
    objects = render(scenario("everything-on"))
    rules = of_kind(objects, "PrometheusRule")[0]["spec"]["groups"] or []
    files = sorted((CHART / "files" / "rules").glob("*.yml"))
    assert rules == [
        group for file in files for group in yaml.safe_load(file.read_text())["groups"]
    ]
    maps = [each["data"] for each in of_kind(objects, "ConfigMap") if "dashboard" in str(each)]
    texts = {file.name: file.read_text().strip()
             for file in (CHART / "files" / "dashboards").glob("*.json")}  # fmt: skip
    assert {name: text for each in maps for name, text in each.items()} == texts


@pytest.mark.parametrize("url", ["https://git.example.org/poolhouse/blob/main", "http://h/x/"])
def test_alerts_link_to_their_runbooks_where_people_find_them(url):
    rules = {"enabled": True, "pagesUrl": url}
    (found,) = of_kind(render({"monitoring": {"rules": rules}}), "PrometheusRule")
    alerts = [rule for group in found["spec"]["groups"] for rule in group["rules"]
              if "alert" in rule]  # fmt: skip
    pages = {alert["annotations"]["runbook_url"] for alert in alerts}
    assert len(pages) == len(alerts) > 15
    for page in pages:
        path = page.removeprefix(url.rstrip("/") + "/")
        assert (CHART.parents[1] / path).is_file()
        assert path != page


def test_the_archive_of_a_release_is_what_helm_packs(tmp_path):
    ours = tool("release").pack_chart(CHART, tmp_path)
    theirs = Path(helm_python.package(CHART, destination=tmp_path / "helm"))
    assert ours.name == theirs.name
    assert members(ours) == members(theirs)
    with helm_python.Chart.load_archive(ours.read_bytes()) as chart:
        assert chart.render({}, name="demo", namespace="rooms")


def members(archive: Path) -> set[str]:
    with tarfile.open(archive) as packed:
        return set(packed.getnames())
