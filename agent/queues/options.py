"""What an operator chooses about queue rules: KAI's plugin arguments, the upstream release, and our own guard."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from agent.errors import BadInputError


class Profile(StrEnum):
    """The upstream release whose answers are given: v0.18.0, or main of October 2026."""

    V0_18 = "0.18"
    MAIN = "main"

    @property
    def tolerance(self) -> float:
        """How far an amount may be above a bound and still fit: main forgives float noise ("0.1 + 0.2 GPU, quota 0.3")."""
        return 1e-9 if self is Profile.MAIN else 0.0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Raises BadInputError for anything but the two names."""
        try:
            return cls(text)
        except ValueError:
            raise BadInputError(f"unknown queue profile {text!r}", hint='choose "0.18" or "main"') from None


@dataclass(frozen=True, slots=True)
class QueueOptions:
    """Arguments of KAI's `proportion` plugin under its names, and two of ours.

    k_value: how strongly historical usage counts against a queue; negative is 0. saturation_multiplier: upstream's
    `relcaimerSaturationMultiplier`; below 1 is 1. queue_priority_in_quota_reclaim: in-quota reclaim by queue priority.
    profile: the upstream release. forbid_take_back: ours, off as upstream: refuse a reclaim whose victims could take
    back at once.
    """

    k_value: float = 1.0
    saturation_multiplier: float = 1.0
    queue_priority_in_quota_reclaim: bool = False
    profile: Profile = Profile.V0_18
    forbid_take_back: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "k_value", max(0.0, self.k_value))
        object.__setattr__(self, "saturation_multiplier", max(1.0, self.saturation_multiplier))
