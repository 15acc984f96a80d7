"""Values: what the schema and the checks refuse, with a sentence, and what passes empty."""

import copy
import json

import pytest

from tests.support.chart import CHART, SCENARIOS, Refused, of_kind, pods, render, scenario
from tests.support.kubernetes import VERSIONS, problems

pytestmark = pytest.mark.slow

ROOM = {"name": "room"}
CPU_POOL = {"device": "cpu", "pledgeGB": 1, "roomSecret": ROOM}
SAMPLES = {
    "resources": {"limits": {"cpu": "3"}},
    "startupProbe": {"exec": {"command": ["true"]}, "httpGet": None, "tcpSocket": None},
    "readinessProbe": {"exec": {"command": ["true"]}, "httpGet": None, "tcpSocket": None},
    "livenessProbe": {"exec": {"command": ["true"]}, "httpGet": None, "tcpSocket": None},
    "lifecycle": {"preStop": {"exec": {"command": ["sleep", "2"]}}},
    "extraArgs": ["--one", "--two"],
    "extraEnv": [{"name": "ONE", "value": "1"}],
    "extraVolumes": [{"name": "more", "emptyDir": {}}],
    "extraVolumeMounts": [{"name": "tmp", "mountPath": "/more"}],
    "initContainers": [{"name": "first", "image": "first:1"}],
    "sidecars": [{"name": "beside", "image": "beside:1"}],
    "podAnnotations": {"one": "1"},
    "podLabels": {"one": "1"},
    "podSecurityContext": {"supplementalGroups": [44]},
    "containerSecurityContext": {"runAsGroup": 7},
    "nodeSelector": {"one": "1"},
    "affinity": {"nodeAffinity": {}},
    "tolerations": [{"key": "one", "operator": "Exists"}],
    "topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}
    ],
    "priorityClassName": "high",
    "runtimeClassName": "other",
    "schedulerName": "other",
    "dnsConfig": {"nameservers": ["10.0.0.10"]},
    "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["one"]}],
}
"""Values that are handed to Kubernetes as they are; null in one takes a default away."""


def with_value(values: dict, path: str, value: object) -> dict:
    changed = copy.deepcopy(values)
    *above, last = path.split(".")
    at = changed
    for name in above:
        at = at.setdefault(name, {})
    at[last] = value
    return changed


def refusal(values: dict, release: str = "demo") -> str:
    with pytest.raises(Refused) as refused:
        render(values, release)
    return str(refused.value)


# ---- the schema ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("contrl", {}),
        ("control.replica", 2),
        ("control.replicas", "2"),
        ("control.replicas", 1.5),
        ("control.replicas", -1),
        ("control.enabled", "yes"),
        ("control.service.port", 0),
        ("control.service", None),
        ("control.image.digest", "sha256:short"),
        ("control.settings.POOLHOUSE_NO_SUCH", "1"),
        ("control.settings.POOLHOUSE_TURN_SECRET", "in the open"),
        ("control.settings.POOLHOUSE_REDIS_URL", "redis://:password@redis"),
        ("control.settings.POOLHOUSE_PORT", 80),
        ("control.settings.POOLHOUSE_MAX_PEERS", []),
        ("control.publicUrl", "room.example.org"),
        ("nodes.pools.gpu", {**CPU_POOL, "gpu": {"count": 0.5}}),
        ("nodes.pools.gpu", {**CPU_POOL, "gpu": {"count": 0}}),
        ("nodes.pools.gpu", {**CPU_POOL, "device": "tpu"}),
        ("nodes.pools.gpu", {**CPU_POOL, "settings": {"POOLHOUSE_ROOM": "a link"}}),
        ("nodes.pools.gpu", {**CPU_POOL, "podDisruptionBudget": {"minAvailable": 1}}),
        ("nodes.pools.gpu", {**CPU_POOL, "replicas": 1001}),  # names have room for 999
        ("nodes.pools.gpu", {**CPU_POOL, "autoscaling": {"maxReplicas": 1001}}),
        ("nodes.defaults.pledgeGB", "1"),
        ("host.options.code", "4TK-G9P"),
        ("host.options.no-such", 1),
        ("relay.settings.POOLHOUSE_COTURN_NO_SUCH", 1),
        ("networkPolicy.serviceCIDRs", ["10.96.0.0"]),
        ("monitoring.podMonitor.interval", "often"),
    ],
)
def test_the_schema_names_what_it_refuses(path, value):
    said = refusal(with_value({}, path, value))
    above, _, last = path.replace(".", "/").rpartition("/")
    at_value = f"at '/{above}/{last}".replace("//", "/") in said
    at_parent = (f"at '/{above}'" if above else "at ''") in said and f"'{last}'" in said
    assert at_value or at_parent, said
    assert "template" not in said  # not a fault found while rendering


def test_the_schema_has_a_word_for_every_value():
    """Each default value fits, and nothing in the schema is only there."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    import yaml

    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(schema["properties"]) - {"global"} == set(values)
    for part in ("control", "relay", "networkPolicy", "monitoring", "image"):
        assert set(schema["properties"][part]["properties"]) == set(values[part])
    assert set(schema["$defs"]["device"]["properties"]) == set(values["nodes"]["defaults"])
    assert set(values["host"]) <= set(schema["$defs"]["host"]["properties"])


# ---- values that depend on each other -----------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"control": {"replicas": 2}}, "Set redis.urlSecret.name, or control.replicas to 1"),
        ({"control": {"autoscaling": {"enabled": True}}}, "control.autoscaling needs Redis"),
        (
            {"redis": {"urlSecret": {"name": "r"}}, "control": {"autoscaling": {
                "enabled": True, "peers": 0}}},
            "nothing to scale by",
        ),
        (
            {"redis": {"urlSecret": {"name": "r"}}, "control": {"autoscaling": {
                "enabled": True, "minReplicas": 9}}},
            "Raise maxReplicas",
        ),
        (
            {"redis": {"urlSecret": {"name": "r"}}, "control": {
                "terminationGracePeriodSeconds": 39}},
            "a drain takes up to 40 s",
        ),
        ({"control": {"ingress": {"enabled": True}}}, "Set control.ingress.hosts"),
        ({"control": {"httpRoute": {"enabled": True}}}, "Set control.httpRoute.parentRefs"),
        (
            {"control": {"ingress": {"enabled": True, "hosts": ["*.example.org"]}}},
            "http://*.example.org is no address",
        ),
        (
            {"control": {"httpRoute": {
                "enabled": True, "parentRefs": [{"name": "g"}], "hostnames": ["*.example.org"]}}},
            "name a host without * first",
        ),
        ({"turn": {"cloudflare": {"keyId": "k"}}}, "Set turn.cloudflare.tokenSecret.name"),
        ({"turn": {"urls": ["turn:relay.example.org"]}}, "Set turn.secret.name"),
        ({"nodes": {"pools": {"gpu": {"pledgeGB": 1}}}}, "Set nodes.pools.gpu.roomSecret.name"),
        ({"nodes": {"pools": {"gpu": {"roomSecret": ROOM}}}}, "Set nodes.pools.gpu.pledgeGB"),
        (
            {"host": {"enabled": True, "roomSecret": ROOM, "resources": {"limits": {"cpu": 4}}}},
            "or host.resources.limits.memory",
        ),
        (
            {"control": {"enabled": False}, "nodes": {"pools": {"cpu": CPU_POOL}}},
            "Set nodes.signal",
        ),
        (
            {"control": {"tls": {"secretName": "tls"}}, "nodes": {"pools": {"cpu": CPU_POOL}}},
            "Set control.publicUrl, or nodes.signal",
        ),
        (
            {"nodes": {"pools": {"gpu": {**CPU_POOL, "device": "cuda", "gpu": {"resource": ""}}}}},
            "asks for no card",
        ),
        (
            {"nodes": {"pools": {"cpu": {**CPU_POOL, "hostNetwork": True}}}},
            "Set nodes.pools.cpu.udpPorts",
        ),
        (
            {"nodes": {"pools": {"cpu": {**CPU_POOL, "cache": {"type": "existingClaim"}}}}},
            "Set nodes.pools.cpu.cache.existingClaim",
        ),
        (
            {"nodes": {"pools": {"cpu": {**CPU_POOL, "cache": {"type": "hostPath"}}}}},
            "Set nodes.pools.cpu.cache.hostPath",
        ),
        (
            {"nodes": {"pools": {"cpu": {**CPU_POOL, "autoscaling": {"enabled": True}}}}},
            "set prometheus.serverAddress",
        ),
        (
            {"nodes": {"pools": {"cpu": {**CPU_POOL, "autoscaling": {
                "enabled": True, "minReplicas": 9,
                "prometheus": {"serverAddress": "http://p", "query": "q"}}}}}},
            "raise maxReplicas",
        ),
        ({"host": {"enabled": True}}, "Set host.roomSecret.name"),
        ({"relay": {"enabled": True}}, "Set turn.secret.name"),
        ({"relay": {"enabled": True}}, "Set relay.host"),
        ({"relay": {"enabled": True}}, "Set relay.externalIP"),
        (
            {"relay": {"enabled": True, "replicas": 2, "externalIP": "203.0.113.7"}},
            "Set relay.replicas to 1",
        ),
        ({"relay": {"enabled": True, "maxPort": 1024}}, "maxPort is not above"),
        (
            {"relay": {"enabled": True, "port": 5349, "tls": {"secretName": "t"}}},
            "relay.port and relay.tlsPort are both 5349",
        ),
        ({"relay": {"enabled": True, "port": 49152}}, "relay.port is 49152, which is one of"),
        ({"relay": {"enabled": True, "tlsPort": 65535}}, "relay.tlsPort is 65535, which is one of"),
        (
            {"networkPolicy": {"enabled": True}, "nodes": {"pools": {"cpu": CPU_POOL}}},
            "networkPolicy.serviceCIDRs is empty",
        ),
        (
            {"control": {"extraEnv": [{"name": "POOLHOUSE_PORT", "value": "80"}]}},
            "control.extraEnv: POOLHOUSE_PORT is set by the chart",
        ),
        (
            {"host": {"enabled": True, "pledgeGB": 1, "roomSecret": ROOM, "extraEnv": [
                {"name": "A", "value": "1"}, {"name": "A", "value": "2"}]}},
            "host.extraEnv: A is set",
        ),
    ],
)  # fmt: skip
def test_values_that_do_not_fit_together_are_a_sentence_that_says_what_to_do(values, words):
    assert words in refusal(values)


def test_every_fault_is_told_at_once():
    said = refusal({"relay": {"enabled": True}, "control": {"replicas": 2}})
    assert said.count("\n- ") == 4


# ---- what is passed on to Kubernetes ------------------------------------------------------------


def everywhere(key: str, value: object) -> dict:
    """Everything switched on, and this said for each workload."""
    values = scenario("everything-on")
    for workload in ("control", "relay", "host", "nodes.pools.gpu", "nodes.pools.scaled"):
        values = with_value(values, f"{workload}.{key}", value)
    return values


@pytest.mark.parametrize("is_null", [False, True], ids=["empty", "null"])
@pytest.mark.parametrize("key", SAMPLES)
def test_empty_values_that_are_passed_on_render(key, is_null):
    empty = None if is_null else type(SAMPLES[key])()
    found = render(everywhere(key, empty))
    assert not [problem for each in found for problem in problems(each, VERSIONS[-1])]


@pytest.mark.parametrize("key", SAMPLES)
def test_what_is_passed_on_reaches_every_workload(key):
    objects = render(everywhere(key, SAMPLES[key]))
    assert not [problem for each in objects for problem in problems(each, VERSIONS[-1])]
    found = [pod for pod in pods(objects) if pod.owner["kind"] != "Pod"]
    assert {pod.component for pod in found} == {"control", "relay", "host", "node"}
    for pod in found:
        assert holds({"metadata": pod.metadata, "spec": pod.spec}, SAMPLES[key]), pod.component


def covers(tree: object, wanted: object) -> bool:
    """Is ``wanted`` all in ``tree``? A key that is null there must be missing."""
    if isinstance(wanted, dict) and isinstance(tree, dict):
        return all(covers(tree.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list) and isinstance(tree, list):
        return all(item in tree for item in wanted)
    return tree == wanted


def holds(tree: object, wanted: object) -> bool:
    """Is ``wanted`` covered by ``tree`` or by something in it?"""
    below = list(tree.values()) if isinstance(tree, dict) else tree
    inside = isinstance(below, list) and any(holds(each, wanted) for each in below)
    return covers(tree, wanted) or inside


@pytest.mark.parametrize("seconds", [1, 3600])
def test_grace_periods_are_settable_everywhere(seconds):
    values = everywhere("terminationGracePeriodSeconds", seconds)
    values = with_value(values, "redis.urlSecret.name", "")  # no drain
    for name in ("replicas", "autoscaling"):
        del values["control"][name]
    for pod in pods(render(values)):
        if pod.owner["kind"] != "Pod":
            assert pod.spec["terminationGracePeriodSeconds"] == seconds


@pytest.mark.parametrize("is_enabled", [True, False])
def test_budgets_are_settable(is_enabled):
    values = scenario("everything-on")
    for workload in ("control", "relay", "nodes.pools.gpu", "nodes.pools.scaled"):
        budget = {"enabled": is_enabled, "maxUnavailable": 2}
        values = with_value(values, f"{workload}.podDisruptionBudget", budget)
    budgets = of_kind(render(values), "PodDisruptionBudget")
    assert [each["spec"]["maxUnavailable"] for each in budgets] == [2, 2, 2, 2] * is_enabled


def test_a_pool_can_take_a_default_back():
    pool = {**CPU_POOL, "startupProbe": None, "livenessProbe": {"httpGet": None, "exec": {
        "command": ["true"]}}}  # fmt: skip
    (found,) = of_kind(render({"nodes": {"pools": {"cpu": pool}}}), "StatefulSet")
    container = found["spec"]["template"]["spec"]["containers"][0]
    assert "startupProbe" not in container
    assert container["livenessProbe"]["exec"] == {"command": ["true"]}
    assert "httpGet" not in container["livenessProbe"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_null_for_any_group_of_values_is_a_sentence(name):
    values = scenario(name)
    for part in ("control", "nodes", "relay", "turn", "redis", "networkPolicy", "monitoring"):
        said = refusal(with_value(values, part, None))
        assert part in said
        assert "nil pointer" not in said
