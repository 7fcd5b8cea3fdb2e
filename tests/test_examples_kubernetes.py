"""The queue manifests have the shape that the API server wants, agree with each other, and the configuration in them is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.config_schema import Config
from agent.formats.lease import API
from agent.kube.cluster_objects import KINDS
from agent.serve.webhook import PATH

EXAMPLES = Path(__file__).resolve().parents[1] / "examples" / "kubernetes"
QUEUES = EXAMPLES / "queues.yaml"
WEBHOOK = EXAMPLES / "queues-webhook.yaml"

# Of the API's schema what these manifests use: field -> what it holds. A dict is an object of exactly these fields, a one-element
# list a list of such; ANY is free. "!" marks what is required. Source: Kubernetes 1.36 OpenAPI.
ANY = object()
META = {"name!": str, "namespace": str, "labels": {"*": str}, "annotations": {"*": str}}
PROBE = {"httpGet!": {"path!": str, "port!": ANY, "scheme": str}}
ROLE = {"rules!": [{"apiGroups!": [str], "resources!": [str], "resourceNames": [str], "verbs!": [str]}]}
BINDING = {
    "roleRef!": {"apiGroup!": str, "kind!": str, "name!": str},
    "subjects!": [{"kind!": str, "name!": str, "namespace!": str}],
}
SCHEMAS: dict[tuple[str, str], Any] = {
    ("v1", "ServiceAccount"): {},
    ("v1", "ConfigMap"): {"data!": {"*": str}},
    ("rbac.authorization.k8s.io/v1", "ClusterRole"): ROLE,
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): BINDING,
    ("rbac.authorization.k8s.io/v1", "Role"): ROLE,
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): BINDING,
    ("v1", "Service"): {"spec!": {"selector!": {"*": str}, "ports!": [{"name!": str, "port!": int, "targetPort!": ANY}]}},
    ("apps/v1", "Deployment"): {
        "spec!": {
            "replicas!": int,
            "strategy!": {"type!": str},
            "selector!": {"matchLabels!": {"*": str}},
            "template!": {
                "metadata!": {"labels!": {"*": str}},
                "spec!": {
                    "serviceAccountName!": str,
                    "priorityClassName": str,
                    "topologySpreadConstraints": [
                        {
                            "maxSkew!": int,
                            "topologyKey!": str,
                            "whenUnsatisfiable!": str,
                            "labelSelector!": {"matchLabels!": {"*": str}},
                        }
                    ],
                    "securityContext!": {
                        "runAsNonRoot!": bool, "runAsUser!": int, "fsGroup!": int, "seccompProfile!": {"type!": str},
                    },
                    "containers!": [
                        {
                            "name!": str,
                            "image!": str,
                            "args!": [str],
                            "ports!": [{"name!": str, "containerPort!": int}],
                            "readinessProbe!": PROBE,
                            "livenessProbe!": PROBE,
                            "resources!": {"requests!": {"*": str}, "limits!": {"*": str}},
                            "securityContext!": {
                                "allowPrivilegeEscalation!": bool,
                                "readOnlyRootFilesystem!": bool,
                                "capabilities!": {"drop!": [str]},
                            },
                            "volumeMounts!": [{"name!": str, "mountPath!": str, "readOnly": bool}],
                        }
                    ],
                    "volumes!": [
                        {
                            "name!": str,
                            "configMap": {"name!": str},
                            "secret": {"secretName!": str},
                            "emptyDir": {"sizeLimit": str},
                        }
                    ],
                },
            },
        }
    },
    ("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration"): {
        "webhooks!": [
            {
                "name!": str,
                "admissionReviewVersions!": [str],
                "rules!": [{"apiGroups!": [str], "apiVersions!": [str], "operations!": [str], "resources!": [str], "scope": str}],
                "clientConfig!": {"service!": {"name!": str, "namespace!": str, "path": str, "port": int}},
                "matchConditions": [{"name!": str, "expression!": str}],
                "failurePolicy": str,
                "matchPolicy": str,
                "sideEffects!": str,
                "timeoutSeconds": int,
            }
        ]
    },
}  # fmt: skip


def faults(value: Any, schema: Any, path: str) -> list[str]:
    """Where a value is not as the schema says."""
    if schema is ANY:
        return []
    if isinstance(schema, list):
        if not isinstance(value, list):
            return [f"{path}: must be a list"]
        return [fault for index, each in enumerate(value) for fault in faults(each, schema[0], f"{path}[{index}]")]
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            return [f"{path}: must be an object"]
        if "*" in schema:
            return [fault for key, each in value.items() for fault in faults(each, schema["*"], f"{path}.{key}")]
        known = {key.rstrip("!"): part for key, part in schema.items()}
        missing = [f"{path}.{key[:-1]}: required" for key in schema if key.endswith("!") and key[:-1] not in value]
        unknown = [f"{path}.{key}: not a field" for key in value if key not in known]
        return [
            *missing,
            *unknown,
            *(fault for key in value if key in known for fault in faults(value[key], known[key], f"{path}.{key}")),
        ]
    return [] if type(value) is schema else [f"{path}: must be {schema.__name__}"]


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text()))


def of_kind(kind: str) -> Any:
    return next(each for each in documents(QUEUES) + documents(WEBHOOK) if each["kind"] == kind)


@pytest.mark.parametrize("path", [QUEUES, WEBHOOK], ids=lambda path: path.name)
def test_every_object_is_as_the_api_server_wants_it(path: Path) -> None:
    for each in documents(path):
        schema = {"apiVersion!": str, "kind!": str, "metadata!": META, **SCHEMAS[each["apiVersion"], each["kind"]]}
        assert faults(each, schema, each["kind"]) == []


def test_the_schema_check_finds_mistakes() -> None:
    schema = {"a!": int, "b": [{"c!": str}]}
    assert faults({"b": [{"c": 1}], "d": 1}, schema, "x") == [
        "x.a: required",
        "x.d: not a field",
        "x.b[0].c: must be str",
    ]


def test_the_configuration_in_it_is_read() -> None:
    text = of_kind("ConfigMap")["data"]["config.yaml"]
    section = Config.model_validate(yaml.safe_load(text)).queues
    ports = {each["name"]: each["containerPort"] for each in container()["ports"]}
    assert ports == {"webhook": section.webhook.port, "api": section.api.port, "grpc": section.grpc.port}
    assert {each["targetPort"] for each in of_kind("Service")["spec"]["ports"]} == set(ports)
    assert section.ledger
    assert (section.lease is not None) == (of_kind("Deployment")["spec"]["replicas"] > 1), "one replica answers"


def container() -> Any:
    return of_kind("Deployment")["spec"]["template"]["spec"]["containers"][0]


def test_every_file_that_the_configuration_names_is_mounted() -> None:
    section = yaml.safe_load(of_kind("ConfigMap")["data"]["config.yaml"])["queues"]
    mounted = [each["mountPath"] for each in container()["volumeMounts"]]
    named = [
        section["stateDirectory"],
        *(section[part][key] for part in ("webhook", "api", "grpc") for key in ("certificate", "key")),
    ]
    for path in [*named, *(section[part]["clientCA"] for part in ("api", "grpc")), container()["args"][-1]]:
        assert any(path == each or path.startswith(f"{each}/") for each in mounted), path
    volumes = {each["name"] for each in of_kind("Deployment")["spec"]["template"]["spec"]["volumes"]}
    assert volumes == {each["name"] for each in container()["volumeMounts"]}


def test_the_role_covers_what_is_watched_and_nothing_else() -> None:
    granted = {
        (group, resource)
        for rule in of_kind("ClusterRole")["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    watched = {(kind.api_version.rpartition("/")[0], kind.path.rpartition("/")[2]) for kind in KINDS}
    assert granted == watched
    assert all(rule["verbs"] == ["list", "watch"] for rule in of_kind("ClusterRole")["rules"])


def test_the_account_may_read_make_and_renew_its_lease_and_no_other() -> None:
    lease = Config.model_validate(yaml.safe_load(of_kind("ConfigMap")["data"]["config.yaml"])).queues.lease
    assert lease is not None
    role, binding, namespace = of_kind("Role"), of_kind("RoleBinding"), of_kind("Deployment")["metadata"]["namespace"]
    assert {each["metadata"]["namespace"] for each in (role, binding)} == {lease.namespace or namespace}
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    account = of_kind("Deployment")["spec"]["template"]["spec"]["serviceAccountName"]
    assert [(each["name"], each["namespace"]) for each in binding["subjects"]] == [(account, namespace)]
    assert all(
        (each["apiGroups"], each["resources"]) == ([API.partition("/")[0]], ["leases"]) for each in role["rules"]
    )
    verbs = {verb: each.get("resourceNames") for each in role["rules"] for verb in each["verbs"]}
    assert verbs == {"get": [lease.name], "update": [lease.name], "create": None}


def test_the_webhook_reaches_the_service_and_its_path() -> None:
    hook = of_kind("ValidatingWebhookConfiguration")["webhooks"][0]
    service, target = of_kind("Service"), hook["clientConfig"]["service"]
    assert (target["name"], target["namespace"]) == (service["metadata"]["name"], service["metadata"]["namespace"])
    assert target["path"] == PATH
    assert target["port"] in [each["port"] for each in service["spec"]["ports"]]
    labels = of_kind("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert hook["rules"] == [
        {
            "apiGroups": [""],
            "apiVersions": ["v1"],
            "operations": ["UPDATE"],
            "resources": ["pods/resize"],
            "scope": "Namespaced",
        }
    ]
    assert 1 <= hook["timeoutSeconds"] <= 30
    assert hook["sideEffects"] in ("None", "NoneOnDryRun")
    assert hook["failurePolicy"] in ("Ignore", "Fail")
