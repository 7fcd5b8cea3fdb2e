"""What the control socket's methods do; called in the loop's own thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.enforcement import Enforcement
from agent.errors import AgentError, BadInputError
from agent.formats.explanation import Explanation, explain, explain_each
from agent.formats.manifests import decode_manifests
from agent.formats.repair_steps import encode_steps
from agent.formats.status import encode_status
from agent.keeper import Keeper
from agent.log import say
from agent.model.cpuset import CPUSet
from agent.model.numa import NodeMask, node_mask
from agent.model.pod import ContainerKind, Pod
from agent.model.state import PodRecord
from agent.node.mode_file import Mode, ModeFile
from agent.node.tasks import Process
from agent.policy.cgroup_intents import has_slice
from agent.policy.cgroup_names import ContainerCgroup, QOSCgroup
from agent.policy.free_hugepages import FreeHugepages, asks_for_hugepages
from agent.policy.pins import Pin
from agent.serve.control import ControlRequestError
from agent.serve.exec_grant import FINISHED, PREPARE, ExecFinished, ExecGrant, ExecRequest
from agent.serve.health import HealthBoard

_log = logging.getLogger("pinfold")


class UnknownPodError(BadInputError):
    """No pod of this name holds a place here."""

    hint = "see `pinfold status` for the pods that are here and those that were refused"


@dataclass(slots=True)
class ControlMethods:
    """problems: of the sources, one sentence each. look: one turn of the loop. reload: the configuration again.

    hugepages: how many are really free at this moment; None where that is not to be looked at.
    """

    keeper: Keeper
    enforcement: Enforcement
    board: HealthBoard
    problems: Callable[[], Sequence[str]]
    look: Callable[[], None]
    reload: Callable[[], None]
    mode: ModeFile
    hugepages: Callable[[], FreeHugepages | None] = lambda: None

    def call(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        """Answer one request. Raises AgentError, which the caller gets as it is."""
        match method:
            case "status":
                return self._status()
            case "explain":
                return {"pods": [{"text": each.text, "json": each.encoded} for each in self._explain(params)]}
            case "reload":
                self.reload()
                return {}
            case "repair":
                return self._repair(
                    str(params.get("directory", "")), apply=_flag(method, params, "apply", absent=False)
                )
            case "pause":
                self._pause(on=_flag(method, params, "on"))
                return {}
            case "release":
                return self._release(apply=_flag(method, params, "apply", absent=False))
            case "look":
                self.look()
                return {}
            case _ if method == PREPARE:
                return self._prepare(ExecRequest.decode(params)).encode()
            case _ if method == FINISHED:
                self._finished(ExecFinished.decode(params))
                return {}
        raise BadInputError(f"unknown method {method[:40]!r}", hint="agent and command are of different versions")

    def _status(self) -> Mapping[str, Any]:
        problems = self.board.problems()
        return encode_status(
            self.keeper.state,
            self.keeper.managers,
            self.keeper.refused,
            [*problems, *self.problems()],
            ready=self.board.is_ready(),
            paused=self.mode.mode is not Mode.RUNNING,
            misaligned=self.keeper.misaligned,
        )

    # --- pause and release ---

    def _pause(self, *, on: bool) -> None:
        """What is released stays so: going on again is what puts grants in force."""
        if not on or self.mode.mode is Mode.RUNNING:
            self.mode.set(Mode.PAUSED if on else Mode.RUNNING)
        if not on:
            self.enforcement.widened = None
            self.keeper.try_again()
        say(_log, logging.WARNING, "paused" if on else "going on")
        self.look()

    def _release(self, *, apply: bool) -> Mapping[str, Any]:
        """What would be written, or was: nothing is written before it is durable that it is meant."""
        before = self.enforcement.widened
        self.enforcement.widened = everything(self.keeper)
        try:
            pins = self.enforcement.lacking(self.keeper.state)
            if apply:
                self.mode.set(Mode.RELEASED)
        except AgentError:
            self.enforcement.widened = before
            raise
        changes = [_encode_pin(pin, self.keeper.state.pods) for pin in pins]
        if not apply:
            self.enforcement.widened = before
            return {"applied": False, "changes": changes, "failed": {}}
        say(_log, logging.WARNING, "released: every container may use every CPU", writes=len(pins))
        failed = self.enforcement.apply(self.keeper.state).faults
        self.look()
        shown = {str(key): str(error) for key, error in failed.items()}
        return {"applied": True, "changes": changes, "failed": shown}

    def _repair(self, directory: str, *, apply: bool) -> Mapping[str, Any]:
        """The steps of a repair, made where `apply` says so. steps: None where this agent's state is in another directory."""
        own = self.keeper.directory.resolve()
        if Path(directory) != own:
            return {"directory": str(own), "steps": None}
        if not apply:
            return {"directory": str(own), "steps": encode_steps(self.keeper.plan_repair())}
        plan = self.keeper.apply_repair()
        for step in plan.steps:
            say(_log, logging.WARNING, "repair applied", rule=step.rule, what=step.text)
        self.look()
        return {"directory": str(own), "steps": encode_steps(plan)}

    # --- explain ---

    def _explain(self, params: Mapping[str, Any]) -> list[Explanation]:
        """Of a manifest's pods, or of a pod that is known by name."""
        keeper = self.keeper
        if "manifest" not in params:
            pod = self._known(str(params.get("pod", "")))
            return [explain(keeper.managers, keeper.node, keeper.state, pod, keeper.devices)]
        gate = keeper.managers.gates.pod_level_resources
        text = str(params["manifest"]).encode(errors="surrogatepass")  # lone surrogates are named as what is no UTF-8
        found = decode_manifests(text, str(params.get("file", "manifest")), pod_level_resources=gate)
        if found.problems:
            raise found.problems[0]
        pods = [each.pod for each in found.pods]
        hugepages = self.hugepages() if any(map(asks_for_hugepages, pods)) else None
        return list(explain_each(keeper.managers, keeper.node, keeper.state, pods, hugepages))

    def _known(self, name: str) -> Pod:
        refused = self.keeper.refused.get(full_name(name))
        return refused.pod if refused is not None else self._find(name).pod

    # --- exec ---

    def _prepare(self, request: ExecRequest) -> ExecGrant:
        """Make the container's cgroup with its grant in force; earlier init containers end here."""
        name, container = request.pod, request.container
        process = Process(request.pid, request.started) if request.pid else None
        if self.keeper.frozen is not None:
            raise self.keeper.frozen
        if self.enforcement.exec_cgroups is None:
            raise BadInputError(
                "enforcement.backend is none: there are no cgroups to run in",
                hint="set enforcement.backend to cgroup and restart the agent",
            )
        pod = self._find(name).pod
        found = next((each for each in pod.containers if each.name == container), None)
        if found is None:
            known = ", ".join(each.name for each in pod.containers)
            raise UnknownPodError(f"pod {pod.namespaced_name} has no container {container!r}", hint=f"it has: {known}")
        self.keeper.started(pod.uid, container)
        state = self.keeper.state
        wanted, groups = self.enforcement.prepare(state, ContainerCgroup(pod.uid, container), process)
        say(_log, logging.INFO, "exec", pod=pod.namespaced_name, container=container, cpus=wanted.cpus)
        return ExecGrant(
            pod.uid,
            container,
            groups,
            cpus=str(wanted.cpus or ""),
            mems=str(CPUSet(wanted.mems or 0)),
            exclusive=has_slice(state.grants.cpu, pod, found),
            must_report=found.kind is ContainerKind.INIT,
        )

    def _find(self, name: str) -> PodRecord:
        full = full_name(name)
        for record in self.keeper.state.pods.values():
            if record.pod.namespaced_name == full:
                return record
        refused = self.keeper.refused.get(full)
        if refused is not None:
            raise UnknownPodError(f"pod {full} was refused: {refused.reason}: {refused.message}", hint=refused.hint)
        raise UnknownPodError(f"no pod {full} is here")

    def _finished(self, ended: ExecFinished) -> None:
        how = f"exit code {ended.exit_code}" if ended.signal is None else f"signal {ended.signal}"
        record = self.keeper.state.pods.get(ended.uid)
        name = record.pod.namespaced_name if record is not None else ended.uid
        say(_log, logging.INFO, "exec finished", pod=name, container=ended.container, how=how)
        if self.enforcement.exec_cgroups is not None:
            self.enforcement.exec_cgroups.remove(ContainerCgroup(ended.uid, ended.container))


def everything(keeper: Keeper) -> tuple[CPUSet, NodeMask]:
    """The CPUs and memory nodes of the machine, as a release gives them to everybody."""
    machine = keeper.managers.machine
    return machine.topology.all, node_mask(machine.numa_memory)


def _flag(method: str, params: Mapping[str, Any], name: str, *, absent: bool | None = None) -> bool:
    """A parameter that is true or false; absent: what it is where it is not given, None: it must be.

    Raises ControlRequestError.
    """
    value = params.get(name, absent)
    if not isinstance(value, bool):
        given = repr(value)[:40] if name in params else "nothing"
        raise ControlRequestError(f"{method} wants {name} as true or false, not {given}")
    return value


def _encode_pin(pin: Pin, pods: Mapping[str, PodRecord]) -> Mapping[str, Any]:
    wanted = pin.settings
    values = {
        "cpus": None if wanted.cpus is None else str(wanted.cpus),
        "mems": None if wanted.mems is None else str(CPUSet(wanted.mems)),
        "quotaMicroseconds": wanted.quota_us,
        "shares": wanted.shares,
        "memoryBytes": wanted.memory_bytes,
    }
    settings = {name: value for name, value in values.items() if value is not None}
    record = None if isinstance(pin.key, QOSCgroup) else pods.get(pin.key.pod)
    pod = "" if record is None else record.pod.namespaced_name
    return {"cgroup": str(pin.key), "pod": pod, "settings": settings}


def full_name(name: str) -> str:
    """ "NAMESPACE/NAME"; a bare name is in namespace default."""
    return name if "/" in name else f"default/{name}"
