"""Why an answer came out as it did: one typed step per rule looked at, with the queue, the resource and the numbers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from agent.model.queue import ResourceName
from agent.queues.quantities import format_amount


class Rule(StrEnum):
    """The rules, by the words a derivation shows. The text says what must hold for the rule to be in favour."""

    CAN_RECLAIM_FAIR_SHARE = "allocated + request fits the fair share"
    CAN_RECLAIM_QUOTA = "non-preemptible allocated + request fits the quota"
    UNDER_QUOTA = "the reclaimer's side stays within its quota"
    MAINTAIN_FAIR_SHARE = "maintain fair share: the victim's side is over its allocatable share"
    GUARANTEE_QUOTA = "guarantee deserved quota: the reclaimer's side stays in quota, the victim's is over quota"
    IN_QUOTA_PRIORITY = "in-quota queue priority: the reclaimer's side stays in quota and has the higher priority"
    QUOTA_CANDIDATE = "the victim's side is over quota in a requested resource, or under it in none"
    SATURATION = "the reclaimer's side is not more saturated than a sibling that loses"
    NON_PREEMPTIBLE_QUOTA = "non-preemptible allocated + request fits the quota on every level"
    NO_TAKE_BACK = "no victim could take back at once"
    LIMIT = "allocated + request fits the limit"
    QUOTA = "non-preemptible allocated + request fits the quota"
    STRICT_LIMIT = "strict mode: no growth where the queue has a limit"
    STRICT_QUOTA = "strict mode: no non-preemptible growth where the queue has a quota"
    RESERVED_LIMIT = "allocated + reserved + request fits the limit"
    RESERVED_QUOTA = "non-preemptible allocated + reserved + request fits the quota"
    DESERVED = "deserved first: quota, at most what is requested and allowed"
    OVER_QUOTA = "over-quota: by priority level, weight and past usage, in whole units"
    LEFT_OVER = "left-over: one unit each to the largest fractions of the priority level"


@dataclass(frozen=True, slots=True)
class Step:
    """One rule applied to one queue (and, where it has one, one resource).

    holds: the rule is in favour. amounts: labelled amounts in the resource's unit. values: labelled plain numbers or
    names.
    """

    rule: Rule
    queue: str
    holds: bool
    resource: ResourceName | None = None
    amounts: tuple[tuple[str, float], ...] = ()
    values: tuple[tuple[str, float | str], ...] = ()

    def __str__(self) -> str:
        parts = []
        if self.resource is not None:
            parts += [f"{label} {format_amount(self.resource, amount)}" for label, amount in self.amounts]
        parts += [f"{label} {value}" for label, value in self.values]
        subject = f"queue {self.queue}" + (f", {self.resource}" if self.resource is not None else "")
        return f"{'yes' if self.holds else 'no '}  {subject}: {self.rule}" + (f" ({', '.join(parts)})" if parts else "")
