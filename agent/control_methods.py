"""What the control socket's methods do; called in the loop's own thread."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.enforcement import Enforcement
from agent.errors import BadInputError
from agent.formats.explanation import Explanation, explain
from agent.formats.manifests import decode_manifests
from agent.formats.repair_steps import encode_steps
from agent.formats.status import encode_status
from agent.keeper import Keeper
from agent.log import say
from agent.model.cpuset import CPUSet
from agent.model.pod import ContainerKind, Pod
from agent.model.state import PodRecord
from agent.policy.cgroup_intents import has_slice
from agent.policy.cgroup_names import ContainerCgroup
from agent.serve.exec_grant import FINISHED, PREPARE, ExecFinished, ExecGrant
from agent.serve.health import HealthBoard

_log = logging.getLogger("pinfold")


class UnknownPodError(BadInputError):
    """No pod of this name holds a place here."""

    hint = "see `pinfold status` for the pods that are here and those that were refused"


@dataclass(slots=True)
class ControlMethods:
    """problems: of the sources, one sentence each. look: one turn of the loop. reload: the configuration again."""

    keeper: Keeper
    enforcement: Enforcement
    board: HealthBoard
    problems: Callable[[], Sequence[str]]
    look: Callable[[], None]
    reload: Callable[[], None]

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
                return self._repair(str(params.get("directory", "")), apply=params.get("apply") is True)
            case "look":
                self.look()
                return {}
            case _ if method == PREPARE:
                return self._prepare(str(params.get("pod", "")), str(params.get("container", ""))).encode()
            case _ if method == FINISHED:
                self._finished(ExecFinished.decode(params))
                return {}
        raise BadInputError(f"unknown method {method[:40]!r}", hint="agent and command are of different versions")

    def _status(self) -> Mapping[str, Any]:
        problems = [f"{name}: {check.reason}" for name, check in self.board.ready().items() if not check.ok]
        return encode_status(
            self.keeper.state,
            self.keeper.managers,
            self.keeper.refused,
            [*problems, *self.problems()],
            ready=self.board.is_ready(),
        )

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
        """Of a manifest's pods, one after the other as if each before it had come; or of a pod that is known by name."""
        keeper = self.keeper
        if "manifest" not in params:
            pod = self._known(str(params.get("pod", "")))
            return [explain(keeper.managers, keeper.node, keeper.state, pod)]
        gate = keeper.managers.gates.pod_level_resources
        found = decode_manifests(str(params["manifest"]).encode(), str(params.get("file")), pod_level_resources=gate)
        if found.problems:
            raise found.problems[0]
        state = keeper.state
        answers: list[Explanation] = []
        for each in found.pods:
            answers.append(explain(keeper.managers, keeper.node, state, each.pod))
            state = answers[-1].after(state)
        return answers

    def _known(self, name: str) -> Pod:
        refused = self.keeper.refused.get(full_name(name))
        return refused.pod if refused is not None else self._find(name).pod

    # --- exec ---

    def _prepare(self, name: str, container: str) -> ExecGrant:
        """Make the container's cgroup with its grant in force; earlier init containers end here."""
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
        wanted, groups = self.enforcement.prepare(state, ContainerCgroup(pod.uid, container))
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


def full_name(name: str) -> str:
    """ "NAMESPACE/NAME"; a bare name is in namespace default."""
    return name if "/" in name else f"default/{name}"
