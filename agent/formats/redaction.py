"""What leaves the house in a support archive without the names of people's workloads.

Every name of a pod, namespace or container becomes a pseudonym: the same one everywhere in one archive, another one in the
next, so that decisions can still be replayed and nobody can look a name up. Labels and annotations are left out.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from agent.model.pod import Container, ContainerStatus, Pod
from agent.model.state import FirstGrant, Grants, PodRecord, State

REDACTED = "(redacted)"
_TOKEN = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9._]*[A-Za-z0-9])?", re.ASCII)
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
# Words of messages that a pod may be called as well: replaced in fields, not in sentences.
_WORDS = frozenset(
    {"cpu", "memory", "pods", "pod", "numa", "node", "default", "request", "requests", "limits", "container"}
)
# Keys of the configuration whose values may say where something is.
_PLACES = frozenset({"url", "server", "host", "address", "name"})


@dataclass(slots=True)
class Redaction:
    """One archive's pseudonyms. key: random, and kept nowhere. Fields come before sentences, which know the names by then."""

    key: bytes
    _known: dict[str, str] = field(default_factory=dict)

    def name(self, text: str, kind: str) -> str:
        """The pseudonym of a name. kind: what it is the name of."""
        if not text:
            return ""
        digest = hmac.new(self.key, f"{kind}/{text}".encode(), hashlib.sha256).hexdigest()[:10]
        return self._known.setdefault(text, f"{kind}-{digest}")

    def uid(self, text: str) -> str:
        """A uid as it is, unless somebody has written it himself."""
        return text if not text or _UUID.fullmatch(text) else self.name(text, "uid")

    def full_name(self, text: str) -> str:
        """ "namespace/name"."""
        namespace, _, name = text.partition("/")
        return f"{self.name(namespace, 'ns')}/{self.name(name, 'pod')}"

    def text(self, text: str) -> str:
        """A sentence with the known names in it replaced."""
        return _TOKEN.sub(lambda match: self._token(match[0]), text)

    def _token(self, token: str) -> str:
        return token if token in _WORDS else self._known.get(token, token)

    # --- the state ---

    def state(self, state: State) -> State:
        """The state under pseudonyms."""
        pods = {self.uid(uid): self._record(record) for uid, record in state.pods.items()}
        uids = {self.full_name(name): self.uid(uid) for name, uid in state.manifest_uids.items()}
        return replace(state, pods=pods, grants=self._grants(state.grants), manifest_uids=uids)

    def _record(self, record: PodRecord) -> PodRecord:
        resize, first = record.resize, record.first
        return replace(
            record,
            pod=self.pod(record.pod),
            first=FirstGrant(
                self._by_container(first.cpus), self._by_container(first.memory), first.pod_cpus, first.pod_memory
            ),
            resize=replace(
                resize,
                desired=None if resize.desired is None else self.pod(resize.desired),
                actual=None if resize.actual is None else self.pod(resize.actual),
                message=self.text(resize.message),
                error=self.text(resize.error),
            ),
            affinities=self._by_container(record.affinities),
            unplaced=record.unplaced and replace(record.unplaced, message=self.text(record.unplaced.message)),
            degraded=record.degraded and replace(record.degraded, message=self.text(record.degraded.message)),
        )

    def pod(self, pod: Pod) -> Pod:
        """A pod with its names replaced and without what nobody decides by."""
        statuses = tuple(self._status(status) for status in pod.status.container_statuses)
        return replace(
            pod,
            uid=self.uid(pod.uid),
            name=self.name(pod.name, "pod"),
            namespace=self.name(pod.namespace, "ns"),
            containers=tuple(self._container(container) for container in pod.containers),
            ephemeral_containers=tuple(self.name(name, "c") for name in pod.ephemeral_containers),
            labels={},
            annotations={},
            node_name=self.name(pod.node_name, "node"),
            status=replace(
                pod.status, container_statuses=statuses, conditions=(), message=self.text(pod.status.message)
            ),
        )

    def _container(self, container: Container) -> Container:
        return replace(container, name=self.name(container.name, "c"))

    def _status(self, status: ContainerStatus) -> ContainerStatus:
        return replace(status, name=self.name(status.name, "c"))

    def _grants(self, grants: Grants) -> Grants:
        cpu, memory = grants.cpu, grants.memory
        return Grants(
            replace(
                cpu,
                entries={self.uid(uid): self._by_container(sets) for uid, sets in cpu.entries.items()},
                pod_entries={self.uid(uid): cpus for uid, cpus in cpu.pod_entries.items()},
            ),
            replace(
                memory,
                entries={self.uid(uid): self._by_container(blocks) for uid, blocks in memory.entries.items()},
                pod_entries={self.uid(uid): blocks for uid, blocks in memory.pod_entries.items()},
            ),
        )

    def _by_container(self, values: Mapping[str, Any]) -> dict[str, Any]:
        return {self.name(name, "c"): value for name, value in values.items()}

    # --- JSON ---

    def record(self, record: Mapping[str, Any]) -> Mapping[str, Any]:
        """A record of `agent.formats.decision_record`."""
        if record.get("kind") != "admission":
            return record
        asked, want = record["input"], record["want"]
        changed = {**asked, "ops": [self._op(op) for op in asked["ops"]]}
        if "before" in asked:
            changed["before"] = {
                "grants": self._grants_json(asked["before"]["grants"]),
                "pods": [self._pod_json(pod) for pod in asked["before"]["pods"]],
            }
        return {**record, "input": changed, "want": {**want, "ops": [self._outcome(each) for each in want["ops"]]}}

    def _op(self, op: Mapping[str, Any]) -> Mapping[str, Any]:
        if "pod" in op:
            changed = {**op, "pod": self._pod_json(op["pod"])}
            if "devices" in op:
                changed["devices"] = {**op["devices"], "containers": self._by_container(op["devices"]["containers"])}
            return changed
        return {**op, "uid": self.uid(op["uid"])} if "uid" in op else op

    def _pod_json(self, pod: Mapping[str, Any]) -> Mapping[str, Any]:
        meta, spec = pod["metadata"], dict(pod["spec"])
        for listed in ("initContainers", "containers"):
            if listed in spec:
                spec[listed] = [{**each, "name": self.name(each["name"], "c")} for each in spec[listed]]
        names = {"name": self.name(meta["name"], "pod"), "namespace": self.name(meta.get("namespace", ""), "ns")}
        return {"metadata": {**names, "uid": self.uid(meta.get("uid", ""))}, "spec": spec}

    def _grants_json(self, grants: Mapping[str, Any]) -> Mapping[str, Any]:
        return {
            resource: {
                **held,
                "entries": {self.uid(uid): self._by_container(own) for uid, own in held["entries"].items()},
                "pod_entries": {self.uid(uid): own for uid, own in held["pod_entries"].items()},
            }
            for resource, held in grants.items()
        }

    def _outcome(self, outcome: Mapping[str, Any]) -> Mapping[str, Any]:
        changed = dict(outcome)
        if "message" in changed:
            changed["message"] = self.text(changed["message"])
        if "pod" in changed:
            containers = [{**each, "name": self.name(each["name"], "c")} for each in changed["pod"]["containers"]]
            changed["pod"] = {**changed["pod"], "containers": containers}
        return changed

    def status(self, status: Mapping[str, Any]) -> Mapping[str, Any]:
        """What `pinfold status -o json` says. Problems name files, and are only counted."""
        pods = [self._status_pod(pod) for pod in status["pods"]]
        refused = [{**self._named(each), **self._sentences(each)} for each in status["refused"]]
        numa = [
            {
                **node,
                "held": self._held(node["held"]),
                "memory": [{**table, "held": self._held(table["held"])} for table in node["memory"]],
            }
            for node in status["numa"]
        ]
        problems = [REDACTED] * len(status["problems"])
        drift = [self.text(line) for line in status.get("drift", ())]
        return {**status, "pods": pods, "refused": refused, "numa": numa, "problems": problems, "drift": drift}

    def _status_pod(self, pod: Mapping[str, Any]) -> Mapping[str, Any]:
        containers = [{**each, "name": self.name(each["name"], "c")} for each in pod["containers"]]
        return {**self._named(pod), **self._sentences(pod), "containers": containers}

    def _named(self, pod: Mapping[str, Any]) -> dict[str, Any]:
        uid = {"uid": self.uid(pod["uid"])} if "uid" in pod else {}
        return {**pod, **uid, "namespace": self.name(pod["namespace"], "ns"), "name": self.name(pod["name"], "pod")}

    def _sentences(self, pod: Mapping[str, Any]) -> dict[str, Any]:
        said: dict[str, Any] = {
            key: self.text(value) for key, value in pod.items() if key in _SENTENCES and isinstance(value, str)
        }
        if "conditions" in pod:
            said["conditions"] = [{**each, "message": self.text(each["message"])} for each in pod["conditions"]]
        return said

    def _held(self, held: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        return [{**each, "pod": self.full_name(each["pod"])} for each in held]

    def config(self, value: Any, key: str = "") -> Any:
        """The configuration without where its servers are. It holds no secrets: those are in files that it only names."""
        if isinstance(value, Mapping):
            return {name: self.config(each, name) for name, each in value.items()}
        return REDACTED if key in _PLACES and value and isinstance(value, str) else value


_SENTENCES = frozenset({"message", "hint", "resizeMessage", "unplaced", "degraded", "misaligned"})
