"""How the agent comes up over what it finds: the stored state, trusted as far as it can be, and what already runs.

The order (design section 5): load; where the file is a newer program's, only observe; after a fallback begin a new epoch; fit
the state to the machine and the configuration; and before anything new is granted, take over what runs and is not known.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from agent.enforcement import Enforcement
from agent.log import say
from agent.model.state import Epoch, State
from agent.node.state_errors import NewerStateFileError
from agent.node.state_store import Loaded, Origin, StateStore
from agent.policy.adopt import EffectiveCpuset
from agent.policy.cgroup_names import ContainerCgroup
from agent.policy.recovery import Running
from agent.policy.repair_plan import RepairPlan, Step

_log = logging.getLogger("pinfold")
_EPOCH = re.compile(rb'"epoch":"([0-9a-f]{12}-[0-9a-f]{16})"')
APPLY = "see `pinfold checkpoint repair --plan`, then run `pinfold checkpoint repair --apply`"


@dataclass(frozen=True, slots=True)
class Beginning:
    """The state to go on from. stored: whether the file says exactly this. newer: the file of a newer program, over which
    nothing may be decided; else None."""

    state: State
    stored: bool = False
    newer: NewerStateFileError | None = None


def first_state(store: StateStore) -> Beginning:
    """Load the state. A fallback begins a new epoch, so that no reader runs backwards.

    Raises StateReadError where permission is lacking.
    """
    try:
        loaded = store.load(datetime.now(UTC))
    except NewerStateFileError as newer:
        say(_log, logging.ERROR, "observe only: nothing is decided or written", why=newer, hint=newer.hint)
        return Beginning(newer.state if newer.state is not None else State(_new_epoch(None)), newer=newer)
    for aside in loaded.set_aside:
        say(_log, logging.ERROR, "state file set aside", file=aside.path, kept_as=aside.kept_as, why=aside.why)
    if loaded.state is not None and loaded.origin is Origin.CURRENT:
        return Beginning(loaded.state, stored=True)
    return Beginning(_fallback(loaded, store.path))


def _fallback(loaded: Loaded, path: Path) -> State:
    """The previous generation, or an empty state, in an epoch after every one that is known of."""
    damaged = {*path.parent.glob(f"{path.name}.damaged-*"), *(aside.kept_as for aside in loaded.set_aside)}
    epochs = [epoch for each in damaged if (epoch := _salvaged(each)) is not None]
    if loaded.state is None:
        if loaded.origin is Origin.LOST:
            say(_log, logging.ERROR, "the state is lost: running containers are taken over from their cgroups")
        return State(_new_epoch(max(epochs, default=None)))
    names = ", ".join(record.pod.namespaced_name for record in loaded.state.pods.values())
    generation = loaded.state.generation
    say(_log, logging.WARNING, "going on from the previous generation", generation=generation, pods=names)
    return replace(loaded.state, epoch=_new_epoch(max([loaded.state.epoch, *epochs])))


def _salvaged(path: Path) -> Epoch | None:
    """The epoch that a damaged file seems to be of: with it not even a clock that was set back lets readers run backwards."""
    try:
        with path.open("rb") as stream:
            found = _EPOCH.search(stream.read(4096))
    except OSError:
        return None
    return Epoch.parse(found[1].decode("ascii")) if found else None


def _new_epoch(previous: Epoch | None) -> Epoch:
    return Epoch.after(previous, now_millis=time.time_ns() // 1_000_000, nonce=secrets.token_hex(8))


def tell_steps(steps: Iterable[Step]) -> None:
    """A log line for every step that was made by itself."""
    for step in steps:
        say(_log, logging.WARNING, "repaired", rule=step.rule, what=step.text)


def waiting_text(repair: RepairPlan) -> str:
    """What an operator must confirm, as one sentence per step; "" where nothing waits."""
    return "; ".join(f"{step.rule}: {step.text}" for step in repair.waiting)


def running_containers(enforcement: Enforcement) -> Running:
    """Where every container that holds tasks may run, as its cgroup says. Raises CgroupError.

    Nothing with backend `none`.
    """
    seen = enforcement.enforcer.observe()
    containers: dict[str, dict[str, EffectiveCpuset]] = {}
    for key, group in seen.groups.items():
        # a runtime's cgroup is there for as long as its container runs; ours stay behind when theirs has ended
        if isinstance(key, ContainerCgroup) and (key.instance or key.container in enforcement.running(key.pod)):
            observed = EffectiveCpuset(group.effective, group.mems)
            containers.setdefault(key.pod, {})[key.container] = observed
    names = {uid: name for uid in containers if (name := enforcement.label(uid))}
    return Running(containers, names)
