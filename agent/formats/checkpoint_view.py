"""Any state file, ours or the kubelet's, as something to show: what it is, how far it can be trusted, what it says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.formats import state as pinfold_state
from agent.formats.allocated_pods import read_allocated_pods
from agent.formats.checkpoint import Reading, Verdict
from agent.formats.cpu_checkpoint import read_cpu_checkpoint
from agent.formats.memory_checkpoint import read_memory_checkpoint
from agent.policy.go_text import print_bytes

_KUBELET: Mapping[str, Callable[[bytes], Reading]] = {
    "cpu": read_cpu_checkpoint,
    "memory": read_memory_checkpoint,
    "allocated-pods": read_allocated_pods,
}
MANAGERS = (*_KUBELET, "pinfold")
# what a file's name begins with -> manager; first match
_NAMES = {
    "cpu_manager_state": "cpu",
    "memory_manager_state": "memory",
    "allocated_pods_state": "allocated-pods",
    "actuated_pods_state": "allocated-pods",
    "pinfold_state": "pinfold",
}
FILE_NAMES = tuple(_NAMES)


@dataclass(frozen=True, slots=True)
class View:
    """manager: one of MANAGERS. verdict: a Verdict, or "newer" for a pinfold_state of a newer schema.

    state: the content in the file's own words, None where there is none to be had.
    """

    manager: str
    version: str
    verdict: str
    why: str = ""
    note: str = ""
    state: Mapping[str, Any] | None = field(default=None, compare=False)

    @property
    def usable(self) -> bool:
        """Whether the content can be taken."""
        return self.verdict in (Verdict.VALID, Verdict.UNVERIFIED)

    def as_json(self) -> dict[str, Any]:
        """The stable form of `-o json`."""
        return {
            "manager": self.manager,
            "version": self.version,
            "verdict": self.verdict,
            "why": self.why,
            "note": self.note,
            "state": self.state,
        }


def guess_manager(name: str, data: bytes) -> str:
    """Whose file this is: by its name, else by what only that file has. "cpu" where nothing tells."""
    for begin, manager in _NAMES.items():
        if name.startswith(begin):
            return manager
    if data.startswith(b'{"schema":'):
        return "pinfold"
    if b'"machineState"' in data:
        return "memory"
    return "allocated-pods" if b'"data"' in data and b'"policyName"' not in data else "cpu"


def view(manager: str, data: bytes) -> View:
    """Read a file as that manager's. Raises nothing: trouble is a verdict."""
    if manager == "pinfold":
        return _pinfold(data)
    reading = _KUBELET[manager](data)
    note = "the fields for older kubelets say something else than data" if reading.inline_differs else ""
    return View(manager, reading.version, reading.verdict, reading.why, note, reading.fields)


def _pinfold(data: bytes) -> View:
    try:
        pinfold_state.decode(data)
    except pinfold_state.NewerStateError as error:
        return View("pinfold", str(error.schema), "newer", str(error))
    except pinfold_state.DamagedStateError as error:
        return View("pinfold", "", Verdict.DAMAGED, str(error))
    except pinfold_state.UnreadableStateError as error:
        return View("pinfold", "", Verdict.UNREADABLE, str(error))
    payload = json.loads(data.partition(b"\n")[2])
    return View("pinfold", str(payload["schema"]), Verdict.VALID, state=payload)


def verdict_line(name: str, found: View) -> str:
    """One line: the file, how far it can be trusted, why not."""
    version = f" ({found.manager} {found.version})" if found.version else f" ({found.manager})"
    rest = "; ".join(part for part in (found.why, found.note) if part)
    return f"{name}: {found.verdict}{version}{': ' if rest else ''}{rest}"


def render(name: str, found: View) -> str:
    """The whole content for people, the verdict first."""
    lines = [verdict_line(name, found)]
    if found.state is not None:
        lines += [f"  {line}" for line in _LINES[found.manager](found.state)]
    return "\n".join(lines)


def _cpu_lines(state: Mapping[str, Any]) -> Iterator[str]:
    yield f"policy {state['policyName']}"
    yield f"shared pool {state['defaultCpuSet'] or 'empty'}"
    for name, entry in sorted((state["entries"] or {}).items()):
        if isinstance(entry, str):
            yield f"container {name}  cpus {entry}"
            continue
        for container, cpus in sorted((entry or {}).items()):
            yield f"pod {name}  container {container}  cpus {cpus}"
    for uid, pod in sorted((state["podEntries"] or {}).items()):
        yield f"pod {uid}  bubble  cpus {pod['cpuSet']}"


def _memory_lines(state: Mapping[str, Any]) -> Iterator[str]:
    yield f"policy {state['policyName']}"
    for node, tables in sorted((state["machineState"] or {}).items()):
        if tables is None:
            continue
        group = f", grouped with {tables['cells']}" if len(tables["cells"] or ()) > 1 else ""
        yield f"NUMA node {node}  blocks: {tables['numberOfAssignments']}{group}"
        for kind, table in sorted((tables["memoryMap"] or {}).items()):
            if table is not None and table["total"]:
                sizes = ", ".join(
                    f"{print_bytes(table[key])} {word}"
                    for key, word in (("total", "in all"), ("systemReserved", "reserved"), ("free", "free"))
                )
                yield f"  {kind}: {sizes}, pods hold {print_bytes(table['reserved'])}"
    for uid, held in sorted((state["entries"] or {}).items()):
        for container, blocks in sorted((held or {}).items()):
            yield f"pod {uid}  container {container}  {_blocks(blocks)}"
    for uid, pod in sorted((state["podEntries"] or {}).items()):
        yield f"pod {uid}  bubble  {_blocks(pod['memoryBlocks'])}"


def _blocks(blocks: list[Mapping[str, Any]] | None) -> str:
    parts = [f"{block['type']} {print_bytes(block['size'])} on {block['numaAffinity']}" for block in blocks or ()]
    return ", ".join(parts) or "nothing"


def _allocated_lines(state: Mapping[str, Any]) -> Iterator[str]:
    for uid, pod in sorted((state["entries"] or {}).items()):
        for container, resources in sorted((pod["ContainerResources"] or {}).items()):
            yield f"pod {uid}  container {container}  {_resources(resources)}"
        if pod["PodLevelResources"] is not None:
            yield f"pod {uid}  whole pod  {_resources(pod['PodLevelResources'])}"


def _resources(resources: Mapping[str, Any]) -> str:
    parts = []
    for kind in ("requests", "limits"):
        amounts = ", ".join(f"{name} {amount}" for name, amount in sorted((resources[kind] or {}).items()))
        parts.append(f"{kind} {amounts or 'none'}")
    return "  ".join(parts)


def _pinfold_lines(state: Mapping[str, Any]) -> Iterator[str]:
    yield f"epoch {state['epoch']}  generation {state['generation']}  boot {state['boot_id'] or 'unknown'}"
    policy = state["policy"]
    reserved = policy["reserved_cpus"] or "none"
    yield f"cpu policy {policy['cpu_policy']}, reserved {reserved}; memory policy {policy['memory_policy']}"
    yield f"shared pool {state['cpu']['default'] or 'empty'}"
    for pod in state["pods"]:
        metadata, uid = pod["pod"]["metadata"], pod["uid"]
        bubble = state["cpu"]["pod_entries"].get(uid)
        marks = "".join(f"  {mark}: {pod[mark]['message']}" for mark in ("unplaced", "degraded") if mark in pod)
        name = f"{metadata.get('namespace', 'default')}/{metadata['name']}"
        yield f"pod {name} ({uid})  {pod['phase']}{f'  bubble {bubble}' if bubble else ''}{marks}"
        for container, cpus in state["cpu"]["entries"].get(uid, {}).items():
            yield f"  container {container}  cpus {cpus}"


_LINES: Mapping[str, Callable[[Mapping[str, Any]], Iterator[str]]] = {
    "cpu": _cpu_lines,
    "memory": _memory_lines,
    "allocated-pods": _allocated_lines,
    "pinfold": _pinfold_lines,
}
