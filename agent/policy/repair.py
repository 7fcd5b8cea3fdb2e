"""What must change in a state before it fits the machine and the configuration it is started under, and who is concerned.

`plan_repair` compares and changes nothing. A step is safe where no running pod is disturbed: those are made at once. The others
wait for an operator (`pinfold checkpoint repair --apply`); meanwhile every pod keeps what it holds and is marked degraded.
The rules, one by one: docs/state.md. Containers that the state does not know: agent.policy.adopt.
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.model.state import Grants, PodRecord
from agent.policy.managers import Managers
from agent.policy.repair_cpus import repair_cpus
from agent.policy.repair_memory import repair_memory
from agent.policy.repair_plan import Change, Holders, RepairPlan, Rule, Step


def plan_repair(managers: Managers, grants: Grants, records: Mapping[str, PodRecord], change: Change) -> RepairPlan:
    """Compare grants with the machine and the configuration in `managers`. records: the pods of the state, in its order.

    Grants that fit give no steps, and `safe` and `whole` equal to them.
    """
    holders = Holders.of(grants, records)
    cpus = repair_cpus(managers.cpu, grants.cpu, change, holders, managers.min_shared_cpus)
    memory = repair_memory(managers.memory, grants.memory, change, holders)
    unknown = tuple(
        Step(Rule.UNKNOWN_POD, True, f"pod {holders.name(uid)} has no record; its grant stays until it is gone", (uid,))
        for uid in holders.unknown
    )
    return RepairPlan(
        (*unknown, *cpus.steps, *memory.steps),
        Grants(cpus.safe, memory.safe),
        Grants(cpus.whole, memory.whole),
        {**memory.marks, **cpus.marks},
        {**memory.marks_after, **cpus.marks_after},
    )
