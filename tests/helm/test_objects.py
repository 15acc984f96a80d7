"""What every rendered object has, in every scenario."""

import re

import pytest

from poolhouse_control.relay.ice import relay_urls, split
from tests.support.chart import SCENARIOS, containers, of_kind, pods, render, scenario

EVERY = pytest.mark.parametrize("name", SCENARIOS)
WORKLOADS = ("Deployment", "StatefulSet")
COMMON_LABELS = {
    "app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/version",
    "app.kubernetes.io/component", "app.kubernetes.io/part-of", "app.kubernetes.io/managed-by",
    "helm.sh/chart",
}  # fmt: skip
CARD = re.compile(r"nvidia\.com/")


def objects(name: str) -> list[dict]:
    """Those that the chart makes itself."""
    return [each for each in render(scenario(name)) if each["metadata"]["name"] != "demo-more"]


def selected(selector: dict, labels: dict) -> bool:
    return selector.items() <= labels.items()


@EVERY
def test_every_object_says_its_namespace_and_what_it_belongs_to(name):
    for each in objects(name):
        assert each["metadata"]["namespace"] == "rooms"
        assert each["metadata"]["labels"].keys() >= COMMON_LABELS
        assert each["metadata"]["labels"]["app.kubernetes.io/instance"] == "demo"


@EVERY
def test_no_two_objects_are_one(name):
    keys = [(each["kind"], each["metadata"]["name"]) for each in objects(name)]
    assert len(keys) == len(set(keys))


# ---- security -----------------------------------------------------------------------------------


@EVERY
def test_pods_fit_the_restricted_level(name):
    """Relays and pools on the machine's network need that one exception."""
    for pod in pods(objects(name)):
        context = pod.spec["securityContext"]
        assert context["runAsNonRoot"] is True
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostPID", "hostIPC"} & pod.spec.keys()
        for container in containers(pod):
            own = container["securityContext"]
            assert own["allowPrivilegeEscalation"] is False
            assert own["readOnlyRootFilesystem"] is True
            assert own["capabilities"]["drop"] == ["ALL"]
            assert "add" not in own["capabilities"]
            assert "privileged" not in own


@EVERY
def test_pods_have_no_rights_in_the_cluster(name):
    kinds = {each["kind"] for each in objects(name)}
    assert not {"Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"} & kinds
    accounts = {each["metadata"]["name"] for each in of_kind(objects(name), "ServiceAccount")}
    for pod in pods(objects(name)):
        assert pod.spec["serviceAccountName"] in accounts
        assert pod.spec["automountServiceAccountToken"] is False


@EVERY
def test_services_do_not_become_settings(name):
    """A Service called poolhouse would set POOLHOUSE_PORT in every pod."""
    assert all(pod.spec["enableServiceLinks"] is False for pod in pods(objects(name)))


@EVERY
def test_the_network_of_the_machine_is_used_only_where_it_was_asked_for(name):
    expected = {
        "gpu-pool": {"node"},
        "relay-hostnet": {"relay"},
        "everything-on": {"relay", "host"},
    }
    found = {pod.component for pod in pods(objects(name)) if pod.spec.get("hostNetwork")}
    assert found == expected.get(name, set())


@EVERY
def test_ports_of_the_machine_are_never_written(name):
    """They would be reserved even without the machine's network."""
    for pod in pods(objects(name)):
        ports = [port for each in containers(pod) for port in each.get("ports", [])]
        assert not any("hostPort" in port for port in ports)


# ---- references ---------------------------------------------------------------------------------


@EVERY
def test_selectors_match_their_pods_and_no_others(name):
    found = pods(objects(name))
    for workload in of_kind(objects(name), *WORKLOADS):
        selector = workload["spec"]["selector"]["matchLabels"]
        assert not any("version" in key or "chart" in key for key in selector)
        chosen = [pod.owner["metadata"]["name"] for pod in found
                  if selected(selector, pod.metadata["labels"])]  # fmt: skip
        assert chosen == [workload["metadata"]["name"]]


@EVERY
def test_services_budgets_policies_and_monitors_select_pods(name):
    labels = [pod.metadata["labels"] for pod in pods(objects(name))]
    for each in of_kind(
        objects(name), "Service", "PodDisruptionBudget", "NetworkPolicy", "PodMonitor"
    ):
        spec = each["spec"]
        selector = spec.get("podSelector") or spec["selector"]
        selector = selector.get("matchLabels", selector)
        assert any(selected(selector, each_labels) for each_labels in labels), each["metadata"]


@EVERY
def test_what_is_mounted_exists_and_what_exists_is_mounted(name):
    for pod in pods(objects(name)):
        volumes = [volume["name"] for volume in pod.spec.get("volumes", [])]
        claims = pod.owner["spec"].get("volumeClaimTemplates", [])
        there = volumes + [claim["metadata"]["name"] for claim in claims]
        assert len(there) == len(set(there))
        mounts = [mount for each in containers(pod) for mount in each.get("volumeMounts", [])]
        assert {mount["name"] for mount in mounts} == set(there)
        for container in containers(pod):
            paths = [mount["mountPath"] for mount in container.get("volumeMounts", [])]
            assert len(paths) == len(set(paths))


@EVERY
def test_port_names_resolve(name):
    found = pods(objects(name))
    for pod in found:
        names = {port["name"] for each in containers(pod) for port in each.get("ports", [])}
        for container in containers(pod):
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                how = container.get(probe, {})
                target = how.get("httpGet") or how.get("tcpSocket") or {"port": None}
                assert target["port"] in {None, *names}
    for service in of_kind(objects(name), "Service"):
        chosen = [pod for pod in found
                  if selected(service["spec"]["selector"], pod.metadata["labels"])]  # fmt: skip
        for port in service["spec"]["ports"]:
            names = {known["name"] for pod in chosen for each in containers(pod)
                     for known in each.get("ports", [])}  # fmt: skip
            assert port["targetPort"] in names


@EVERY
def test_no_variable_is_set_twice(name):
    for pod in pods(objects(name)):
        for container in containers(pod):
            names = [variable["name"] for variable in container.get("env", [])]
            assert len(names) == len(set(names))


@EVERY
def test_scaled_workloads_exist_and_say_no_number_of_their_own(name):
    known = {(each["kind"], each["metadata"]["name"]): each for each in objects(name)}
    for scaler in of_kind(objects(name), "HorizontalPodAutoscaler", "ScaledObject"):
        target = scaler["spec"]["scaleTargetRef"]
        assert "replicas" not in known[target["kind"], target["name"]]["spec"]


@EVERY
def test_the_admin_port_is_in_no_service(name):
    ports = [port["targetPort"] for each in of_kind(objects(name), "Service")
             for port in each["spec"]["ports"]]  # fmt: skip
    assert "admin" not in ports


# ---- rollouts -----------------------------------------------------------------------------------


@EVERY
def test_nothing_that_holds_a_card_or_a_port_is_doubled_while_it_is_replaced(name):
    for workload in of_kind(objects(name), "Deployment"):
        spec = workload["spec"]["template"]["spec"]
        strategy = workload["spec"]["strategy"]
        if spec.get("hostNetwork"):
            assert strategy["rollingUpdate"]["maxSurge"] == 0
        limits = [each.get("resources", {}).get("limits", {}) for each in spec["containers"]]
        assert not any(CARD.match(resource) for amounts in limits for resource in amounts)


def test_without_a_store_the_old_control_plane_goes_first():
    assert of_kind(objects("default"), "Deployment")[0]["spec"]["strategy"] == {"type": "Recreate"}
    rolling = of_kind(objects("ha-redis"), "Deployment")[0]["spec"]["strategy"]
    assert rolling["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}


@EVERY
def test_devices_are_sets_whose_pods_keep_their_names(name):
    for each in of_kind(objects(name), "StatefulSet"):
        spec = each["spec"]
        (container,) = [c for c in spec["template"]["spec"]["containers"] if c["name"] == "node"]
        env = {variable["name"]: variable for variable in container["env"]}
        assert env["POOLHOUSE_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
        assert spec["podManagementPolicy"] == "Parallel"
        services = [s["metadata"]["name"] for s in of_kind(objects(name), "Service")
                    if s["spec"].get("clusterIP") == "None"]  # fmt: skip
        assert spec["serviceName"] in services


@EVERY
def test_the_program_is_the_first_process(name):
    """A shell in between would keep SIGTERM from it."""
    for pod in pods(objects(name)):
        for container in pod.spec["containers"]:
            if container["name"] in {"control", "node", "coturn"}:
                assert "command" not in container


@EVERY
def test_budgets_are_for_what_has_several_replicas(name):
    sizes = {each["metadata"]["name"]: each["spec"].get("replicas", 2)
             for each in of_kind(objects(name), *WORKLOADS)}  # fmt: skip
    for budget in of_kind(objects(name), "PodDisruptionBudget"):
        assert sizes[budget["metadata"]["name"]] > 1
        assert budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


# ---- devices ------------------------------------------------------------------------------------


def container_of(name: str, set_name: str) -> dict:
    (found,) = [each for each in of_kind(objects(name), "StatefulSet")
                if each["metadata"]["name"] == set_name]  # fmt: skip
    return found["spec"]["template"]["spec"]["containers"][0]


def test_a_gpu_pool_asks_for_a_card_and_tolerates_its_taint():
    spec = next(pod.spec for pod in pods(objects("gpu-pool")) if "h200" in str(pod.owner))
    limits = spec["containers"][0]["resources"]["limits"]
    assert limits == {"memory": "134Gi", "nvidia.com/gpu": 1}
    assert spec["containers"][0]["resources"]["requests"] == limits
    assert spec["tolerations"] == [
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
    ]
    assert spec["runtimeClassName"] == "nvidia"


def test_false_counts_before_a_default_that_is_true():
    slices = container_of("gpu-pool", "demo-poolhouse-slices")
    assert slices["resources"]["limits"]["nvidia.com/mig-1g.18gb"] == 1
    spec = next(pod.spec for pod in pods(objects("gpu-pool")) if "slices" in str(pod.owner))
    assert "tolerations" not in spec


def test_a_cpu_pool_needs_no_card():
    container = container_of("cpu-pool", "demo-poolhouse-cpu")
    assert container["resources"]["limits"] == {"memory": "12Gi", "cpu": 4}
    assert container["image"].endswith("-cpu")
    (pod,) = [pod for pod in pods(objects("cpu-pool"))
              if pod.owner["metadata"]["name"] == "demo-poolhouse-cpu"]  # fmt: skip
    assert "tolerations" not in pod.spec
    assert "volumeClaimTemplates" not in pod.owner["spec"]


def test_a_pool_with_a_limit_needs_no_pledge():
    """The program lends what the limit leaves; Kubernetes requests as much as the limit."""
    container = container_of("cpu-pool", "demo-poolhouse-limited")
    assert container["resources"] == {"requests": {}, "limits": {"memory": "16Gi"}}
    assert "POOLHOUSE_PLEDGE" not in {each["name"] for each in container["env"]}
    said = container_of("cpu-pool", "demo-poolhouse-cpu")["env"]
    assert {"name": "POOLHOUSE_PLEDGE", "value": "8"} in said


def test_policies_keep_devices_out_of_the_clusters_services():
    policies = {each["metadata"]["name"]: each["spec"]
                for each in of_kind(objects("everything-on"), "NetworkPolicy")}  # fmt: skip
    for policy in (policies["demo-poolhouse-node"], policies["demo-poolhouse-host"]):
        open_to_all = [rule for rule in policy["egress"] if "ports" not in rule]
        (rule,) = open_to_all
        blocks = {peer["ipBlock"]["cidr"]: peer["ipBlock"]["except"] for peer in rule["to"]}
        assert set(blocks["0.0.0.0/0"]) == {"169.254.0.0/16", "10.96.0.0/12"}
        assert {"fe80::/10", "fd00:10:96::/112"} <= set(blocks["::/0"])


@pytest.mark.parametrize(
    ("values", "ports"),
    [
        ({"turn": {"urls": ["turn:relay.example.org"]}}, [3478]),
        ({"turn": {"urls": ["turn:a:443", "turn:b:443?transport=udp", "turn:[::1]"]}}, [443, 3478]),
        ({"turn": {"urls": ["turns:a:5349", "turn:a:3479?transport=tcp"]}}, []),
        ({"turn": {"urls": ["stun:a:19302", "turns:b?transport=udp"]}}, [19302, 5349]),
        ({"control": {"settings": {"POOLHOUSE_TURN_HOST": "relay.example.org"}}}, [3478]),
        ({"relay": {
            "enabled": True, "host": "a", "nodeAddressIsPublic": True, "port": 3500}}, [3500]),
        ({}, []),
    ],
)  # fmt: skip
def test_the_control_plane_may_ask_its_relays_whether_they_are_there(values, ports):
    """Only by UDP, as RelayHealth does; a relay at 443 is common."""
    turn = {"secret": {"name": "turn"}, **values.get("turn", {})}
    found = render({**values, "turn": turn, "networkPolicy": {"enabled": True}})
    (policy,) = [each["spec"] for each in of_kind(found, "NetworkPolicy")]
    rules = [rule["ports"] for rule in policy["egress"] if "to" not in rule]
    assert [port for rule in rules for port in rule] == [
        {"protocol": "UDP", "port": port} for port in ports
    ]
    assert set(ports_asked_by(found)) == set(ports)


def ports_asked_by(objects: list[dict]) -> list[int]:
    """Where the control plane itself would send."""
    (pod,) = [pod for pod in pods(objects) if pod.component == "control"]
    env = {each["name"]: each.get("value", "") for each in pod.spec["containers"][0]["env"]}
    urls = tuple(url for url in env.get("POOLHOUSE_TURN_URLS", "").split(",") if url)
    found = [split(url) for url in relay_urls(urls, env.get("POOLHOUSE_TURN_HOST", ""))]
    return [port for _, _, port, transport in filter(None, found) if transport == "udp"]


def test_pools_on_one_machine_can_have_ports_of_their_own():
    slices = container_of("gpu-pool", "demo-poolhouse-slices")
    assert slices["ports"] == [{"name": "metrics", "containerPort": 9191}]
    env = {variable["name"]: variable.get("value") for variable in slices["env"]}
    assert env["POOLHOUSE_METRICS_PORT"] == "9191"
    assert env["POOLHOUSE_UDP_PORTS"] == "40000-40199"
    (service,) = [each for each in of_kind(objects("gpu-pool"), "Service")
                  if each["metadata"]["name"] == "demo-poolhouse-slices"]  # fmt: skip
    assert service["spec"]["ports"][0]["port"] == 9191


@EVERY
def test_what_is_there_is_watched_and_nothing_else(name):
    values = {**scenario(name), "monitoring": {"podMonitor": {"enabled": True}}}
    installed = render(values)
    watched = {each["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"]
               for each in of_kind(installed, "PodMonitor")}  # fmt: skip
    running = {pod.component for pod in pods(installed)} - {"test", "relay"}
    assert watched == running
    for monitor in of_kind(installed, "PodMonitor"):
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        selector = monitor["spec"]["selector"]["matchLabels"]
        for pod in pods(installed):
            if selected(selector, pod.metadata["labels"]):
                ports = [port for each in containers(pod) for port in each.get("ports", [])]
                assert endpoint["port"] in {port["name"] for port in ports}
