"""Every scenario in the chart's ci/ is clean and gives objects that Kubernetes takes."""

import copy

import helm_python
import pytest

from tests.support.chart import CHART, SCENARIOS, of_kind, pods, render, scenario
from tests.support.kubernetes import VERSIONS, problems

pytestmark = pytest.mark.slow

LONGEST_RELEASE = "release-with-the-longest-name-that-helm-lets-through-1"[:53]
RELEASES = ["a", LONGEST_RELEASE, "poolhouse", "with.dots"]
EXPECTED = {
    "default", "ha-redis", "gpu-pool", "cpu-pool", "host-room", "relay-hostnet", "openshift",
    "everything-on",
}  # fmt: skip


def test_the_scenarios_are_there():
    assert set(SCENARIOS) == EXPECTED


@pytest.mark.parametrize("name", SCENARIOS)
def test_lint_is_clean(name):
    report = helm_python.lint(CHART, scenario(name), strict=True, kube_version="v1.31.0")
    assert report["total_charts_linted"] == 1
    assert report["messages"] == []
    assert report["errors"] == []


def test_lint_would_see_a_fault(tmp_path):
    broken = tmp_path / "poolhouse"
    copy_tree(CHART, broken)
    (broken / "templates" / "broken.yaml").write_text("a: [")
    assert helm_python.lint(broken, {}, strict=True)["errors"]


def copy_tree(source, target):
    for path in source.rglob("*"):
        if path.is_file():
            copied = target / path.relative_to(source)
            copied.parent.mkdir(parents=True, exist_ok=True)
            copied.write_bytes(path.read_bytes())


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", SCENARIOS)
def test_kubernetes_takes_every_object(name, version):
    found = [problem for each in render(scenario(name)) for problem in problems(each, version)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", SCENARIOS)
def test_kubernetes_takes_them_whatever_the_release_is_called(name, release):
    found = [
        problem
        for each in render(scenario(name), release)
        for problem in problems(each, VERSIONS[-1])
    ]
    assert not found, "\n".join(found)


def test_the_check_sees_a_field_in_the_wrong_place():
    deployment = copy.deepcopy(of_kind(render({}), "Deployment")[0])
    deployment["spec"]["serviceName"] = "nowhere"
    assert any("serviceName" in problem for problem in problems(deployment, VERSIONS[0]))


def test_by_default_there_is_one_control_plane_and_nothing_else():
    installed = [
        (each["kind"], each["metadata"]["name"])
        for each in render({})
        if "helm.sh/hook" not in each["metadata"].get("annotations", {})
    ]
    assert sorted(installed) == [
        ("Deployment", "demo-poolhouse-control"),
        ("Service", "demo-poolhouse-control"),
        ("ServiceAccount", "demo-poolhouse"),
    ]
    assert all("." not in each["apiVersion"].partition("/")[0] for each in render({}))  # no CRDs


def test_openshift_chooses_the_uid():
    for pod in pods(render(scenario("openshift"))):
        context = pod.spec["securityContext"]
        assert context["runAsNonRoot"] is True
        assert not {"runAsUser", "runAsGroup", "fsGroup"} & context.keys()
