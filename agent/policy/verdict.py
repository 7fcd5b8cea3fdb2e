"""The answer to one pod: what it is given or why it is refused, and on which merges of hints that rests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.model.state import Grants
from agent.policy.eligibility import Claims
from agent.policy.hint_family import Hint, ProviderHints
from agent.policy.refusal import Refusal
from agent.policy.topology_manager import Merged


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer for one pod and the grants after it; a refusal has the grants it was given.

    affinities: container -> the merged hint its resources were allocated under. merges: every merge on the way. rule: what
    decided a refusal, in words.
    """

    admitted: bool
    grants: Grants
    claims: Claims
    reason: str = ""
    message: str = ""
    hint: str = ""
    affinities: Mapping[str, Hint] = field(default_factory=dict)
    merges: tuple[MergeStep, ...] = ()
    rule: str = ""

    @classmethod
    def refused(cls, grants: Grants, asked: Claims, refusal: Refusal, merges: tuple[MergeStep, ...] = ()) -> Verdict:
        """A refusal, with everything it says."""
        return cls(False, grants, asked, refusal.reason, str(refusal), refusal.hint, merges=merges, rule=refusal.rule)

    @property
    def exact(self) -> bool:
        """False where a merge ran out of its work budget: the answer is safe but may not be the best."""
        return all(step.merged.exact for step in self.merges)


@dataclass(frozen=True, slots=True)
class MergeStep:
    """One merge of an admission, for `explain`. container: "" where the whole pod is aligned. providers: what each said."""

    container: str
    providers: tuple[ProviderHints, ...]
    merged: Merged
