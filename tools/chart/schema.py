"""The schema of the chart's values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tools.chart import settings
from tools.chart.forms import (
    DNS_NAME,
    Schema,
    array,
    choice,
    mapping,
    named_settings,
    number,
    objects,
    partial,
    pattern,
    record,
    ref,
    whole,
)

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["schema_text"]

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
TEXTS = mapping(TEXT)
QUANTITY = r"[0-9]+(\.[0-9]+)?(m|[kMGTPE]i?)?"
DURATION = r"^([0-9]+(h|m|s|ms))+$"
HOST = r"^[a-z0-9.*-]+$"
ADDRESS = r"[0-9a-fA-F:.]+"
ORIGIN = r"https?://[^/\s?#@]+"
PORT = whole(1, 65535)
_MOST_PODS = 1000
"""Of a pool: names of devices have room for ordinals up to 999."""

# Kubernetes' own fields, the same for every workload. Null and empty mean: not there.
PASSED_ON: dict[str, Schema] = {
    "resources": ref("resources"),
    "startupProbe": mapping(),
    "readinessProbe": mapping(),
    "livenessProbe": mapping(),
    "lifecycle": mapping(),
    "extraArgs": array(TEXT),
    "extraEnv": ref("variables"),
    "extraVolumes": objects(),
    "extraVolumeMounts": objects(),
    "initContainers": objects(),
    "sidecars": objects(),
    "podAnnotations": TEXTS,
    "podLabels": TEXTS,
    "podSecurityContext": mapping(),
    "containerSecurityContext": mapping(),
    "nodeSelector": TEXTS,
    "affinity": mapping(),
    "tolerations": objects(),
    "topologySpreadConstraints": objects(),
    "priorityClassName": ref("optionalName"),
    "runtimeClassName": ref("optionalName"),
    "schedulerName": ref("optionalName"),
    "dnsConfig": mapping(),
    "hostAliases": objects(),
}


def schema_text(chart: Path) -> str:
    """The schema as it is written; what a person may set is asked of the code."""
    templates = chart / "templates"
    named = {
        "controlSettings": settings.control_settings(templates),
        "nodeSettings": settings.node_settings(templates),
        "coturnSettings": settings.coturn_settings(templates),
        "hostOptions": settings.host_options(),
    }
    definitions = _definitions() | {name: named_settings(names) for name, names in named.items()}
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Values of the poolhouse chart. Made by tools/make-chart-files.",
        **_values(),
        "$defs": definitions,
    }
    return json.dumps(schema, indent=2) + "\n"


def _definitions() -> dict[str, Schema]:
    device = _workload(_device(), ("settings", "resourceClaims"))
    small = {
        "optionalName": {"type": ["string", "null"], "pattern": DNS_NAME, "maxLength": 253},
        "secretKey": record({"name": pattern(DNS_NAME), "key": pattern(r"^[-._a-zA-Z0-9]+$")}),
        "tls": record({"secretName": pattern(DNS_NAME)}),
        "image": record(
            {
                "repository": pattern(r"^[a-z0-9][a-z0-9._/:-]*$"),
                "tag": pattern(r"^[A-Za-z0-9_.-]{0,128}$"),
                "digest": pattern(r"^(sha256:[0-9a-f]{64})?$"),
            }
        ),
        "budget": record({"enabled": FLAG, "maxUnavailable": whole(1)}),
        "amounts": mapping({"type": ["string", "integer"], "pattern": f"^{QUANTITY}$"}),
        "resources": mapping()
        | partial(
            record({"requests": ref("amounts"), "limits": ref("amounts"), "claims": objects()})
        )
        | {"type": ["object", "null"]},
        "variables": array(
            record({"name": pattern(r"^[A-Za-z_][A-Za-z0-9_.-]*$"), "value": TEXT,
                    "valueFrom": {"type": "object"}}, ("value", "valueFrom"))
        ),
    }  # fmt: skip
    small |= {f"{name}Part": partial(small[name]) for name in ("secretKey", "image", "budget")}
    return small | {"device": device, "pool": _pool(device), "host": _host(device)}


def _workload(properties: dict[str, Schema], optional: tuple[str, ...] = ()) -> Schema:
    own = {**properties, "terminationGracePeriodSeconds": whole(1, 86_400)}
    return record({**own, **PASSED_ON}, (*optional, *PASSED_ON))


def _device() -> dict[str, Schema]:
    return {
        "replicas": whole(0, _MOST_PODS),
        "device": choice("cuda", "cpu"),
        "image": ref("image"),
        "gpu": record(
            {
                "resource": pattern(r"^([a-z0-9]([-.a-z0-9]*[a-z0-9])?/[A-Za-z0-9._-]+)?$"),
                "count": whole(1),
                "toleration": FLAG,
            }
        ),
        "roomSecret": ref("secretKey"),
        "pledgeGB": number(0, 4096),
        "settings": ref("nodeSettings"),
        "apiTokenSecret": ref("secretKey"),
        "iceSecret": ref("secretKey"),
        "udpPorts": pattern(r"^([0-9]{1,5}-[0-9]{1,5})?$"),
        "hostNetwork": FLAG,
        "metricsPort": whole(1024, 65535),
        "state": record(
            {
                "persistent": FLAG,
                "size": pattern(f"^{QUANTITY}$"),
                "storageClass": pattern(DNS_NAME),
                "whenScaled": choice("Retain", "Delete"),
                "whenDeleted": choice("Retain", "Delete"),
            }
        ),
        "cache": record(
            {
                "type": choice("claim", "existingClaim", "hostPath", "emptyDir"),
                "size": pattern(f"^{QUANTITY}$"),
                "storageClass": pattern(DNS_NAME),
                "existingClaim": pattern(DNS_NAME),
                "hostPath": pattern(r"^(/[A-Za-z0-9._/-]*)?$"),
                "readOnly": FLAG,
            }
        ),
        "sharedMemory": pattern(f"^({QUANTITY})?$"),
        "sameZone": FLAG,
        "updateStrategy": record(
            {"type": choice("RollingUpdate", "OnDelete"), "rollingUpdate": {"type": "object"}},
            ("rollingUpdate",),
        ),
        "minReadySeconds": whole(0),
        "podDisruptionBudget": ref("budget"),
        "autoscaling": record(
            {
                "enabled": FLAG,
                "minReplicas": whole(0),
                "maxReplicas": whole(1, _MOST_PODS),
                "prometheus": record({"serverAddress": TEXT, "query": TEXT, "threshold": TEXT}),
            }
        ),
        "resourceClaims": objects(),
    }


def _pool(device: Schema) -> Schema:
    pool = partial(device)
    keys = {"image": "image", "podDisruptionBudget": "budget"}
    keys |= dict.fromkeys(("roomSecret", "apiTokenSecret", "iceSecret"), "secretKey")
    pool["properties"] |= {key: ref(f"{name}Part") for key, name in keys.items()}
    return pool | {"type": ["object", "null"]}


def _host(device: Schema) -> Schema:
    host = _pool(device)
    properties = host["properties"]
    for key in ("replicas", "autoscaling", "podDisruptionBudget"):  # a room has one host
        del properties[key]
    own = {
        "enabled": FLAG,
        "model": pattern(r"^\S+$"),
        "wait": whole(0, 64),
        "denyUnknown": FLAG,
        "options": ref("hostOptions"),
    }
    required = sorted({*own, "device", "pledgeGB", "roomSecret", "cache"} - {"options"})
    return host | {"type": "object", "properties": {**properties, **own}, "required": required}


def _control() -> Schema:
    scaling = {
        "enabled": FLAG,
        "minReplicas": whole(1),
        "maxReplicas": whole(1, 1000),
        "peers": whole(0),
        "memoryUtilization": whole(0, 1000),
        "behavior": mapping(),
    }
    return _workload(
        {
            "enabled": FLAG,
            "replicas": whole(0, 1000),
            "image": ref("image"),
            "publicUrl": pattern(f"^({ORIGIN})?$"),
            "trustedProxies": array(pattern(rf"^{ADDRESS}(/[0-9]{{1,3}})?$")),
            "origins": array(pattern(f"^{ORIGIN}$")),
            "settings": ref("controlSettings"),
            "apiTokensSecret": ref("secretKey"),
            "tls": ref("tls"),
            "drain": record({"delaySeconds": whole(0, 600), "spreadSeconds": whole(0, 3600)}),
            "service": record(
                {
                    "type": choice("ClusterIP", "NodePort", "LoadBalancer"),
                    "port": PORT,
                    "annotations": TEXTS,
                },
                ("annotations",),
            ),
            "ingress": record(
                {
                    "enabled": FLAG,
                    "className": pattern(DNS_NAME),
                    "annotations": TEXTS,
                    "hosts": array(pattern(HOST)),
                    "tls": objects(),
                },
                ("className", "annotations", "hosts", "tls"),
            ),
            "httpRoute": record(
                {
                    "enabled": FLAG,
                    "annotations": TEXTS,
                    "parentRefs": objects(),
                    "hostnames": array(pattern(HOST)),
                    "timeout": pattern(DURATION),
                },
                ("annotations", "parentRefs", "hostnames", "timeout"),
            ),
            "autoscaling": record(scaling, ("behavior",)),
            "podDisruptionBudget": ref("budget"),
        },
        ("settings", "trustedProxies", "origins"),
    )


def _relay() -> Schema:
    own: dict[str, Schema] = {
        "enabled": FLAG,
        "replicas": whole(0),
        "image": ref("image"),
        "host": pattern(r"^[A-Za-z0-9.-]*$"),
        "externalIP": pattern(f"^({ADDRESS})?$"),
        "nodeAddressIsPublic": FLAG,
        "realm": pattern(r"^[A-Za-z0-9.-]*$"),
        "port": whole(1024, 65535),
        "tlsPort": whole(1024, 65535),
        "minPort": whole(1024, 65535),
        "maxPort": whole(1024, 65535),
        "tls": ref("tls"),
        "settings": ref("coturnSettings"),
        "podDisruptionBudget": ref("budget"),
    }
    return _workload(own, ("settings",))


def _network_policy() -> Schema:
    lists = ("httpFrom", "metricsFrom", "dnsTo", "redisTo", "controlEgress", "nodeEgress")
    own: dict[str, Schema] = {
        "enabled": FLAG,
        "redisPort": PORT,
        "serviceCIDRs": array(pattern(rf"^{ADDRESS}/[0-9]{{1,3}}$")),
    }
    return record({**own, **{name: objects() for name in lists}}, (*lists, "serviceCIDRs"))


def _monitoring() -> Schema:
    monitor = {"enabled": FLAG, "interval": pattern(DURATION), "labels": TEXTS}
    monitor |= {name: objects() for name in ("relabelings", "metricRelabelings")}
    dashboards = {"enabled": FLAG, "labels": TEXTS, "annotations": TEXTS}
    return record(
        {
            "podMonitor": record(monitor, ("labels", "relabelings", "metricRelabelings")),
            "rules": record(
                {
                    "enabled": FLAG,
                    "pagesUrl": pattern(r"^(https?://[A-Za-z0-9._~:/@%+=-]+)?$"),
                    "labels": TEXTS,
                },
                ("labels",),
            ),
            "dashboards": record(dashboards, ("labels", "annotations")),
            "annotations": FLAG,
        }
    )


def _values() -> Schema:
    pools = {
        "type": "object",
        "patternProperties": {r"^[a-z]([a-z0-9-]{0,18}[a-z0-9])?$": ref("pool")},
        "additionalProperties": False,
    }
    account = {"create": FLAG, "name": pattern(DNS_NAME), "annotations": TEXTS}
    cloudflare = record({"keyId": TEXT, "tokenSecret": ref("secretKey")})
    return record(
        {
            "nameOverride": pattern(r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$", maxLength=40),
            "fullnameOverride": pattern(r"^([a-z]([-a-z0-9]*[a-z0-9])?)?$", maxLength=63),
            "image": record(
                {
                    "registry": pattern(r"^[A-Za-z0-9._/:-]*$"),
                    "pullPolicy": choice("IfNotPresent", "Always", "Never"),
                    "pullSecrets": array(record({"name": pattern(DNS_NAME, minLength=1)})),
                },
                ("pullSecrets",),
            ),
            "listenAddress": pattern(f"^{ADDRESS}$"),
            "serviceAccount": record(account, ("annotations",)),
            "podSecurityContext": {"type": "object"},
            "containerSecurityContext": {"type": "object"},
            "commonLabels": TEXTS,
            "extraObjects": objects(),
            "redis": record(
                {
                    "urlSecret": ref("secretKey"),
                    "cluster": FLAG,
                    "prefix": pattern(r"^[A-Za-z0-9_.:-]{0,32}$"),
                }
            ),
            "turn": record(
                {
                    "secret": ref("secretKey"),
                    "urls": array(pattern(r"^(stuns?|turns?):[^\s,]+$")),
                    "cloudflare": cloudflare,
                    "iceServersSecret": ref("secretKey"),
                },
                ("urls",),
            ),
            "control": _control(),
            "nodes": record(
                {
                    "signal": pattern(r"^([^\s,]+(,[^\s,]+)*)?$"),
                    "defaults": ref("device"),
                    "pools": pools,
                }
            ),
            "host": ref("host"),
            "relay": _relay(),
            "networkPolicy": _network_policy(),
            "monitoring": _monitoring(),
            "global": {"type": "object"},
        },
        ("commonLabels", "extraObjects", "global"),
    )
