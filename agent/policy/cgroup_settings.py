"""What a cgroup can be told and what it says: values, and the kubelet's conversions from CPUs to shares, weight and quota.

Source: kubelet cm/helpers_linux.go (MilliCPUToShares, MilliCPUToQuota); runc's conversion to the weight of cgroup v2.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.model.cpuset import CPUSet
from agent.model.numa import NodeMask

NO_LIMIT = -1  # a quota or memory bound that is not there: -1 in v1 files, "max" in v2 files

CFS_PERIOD_US = 100_000
MIN_QUOTA_US = 1_000  # the kernel refuses less
MIN_SHARES, MAX_SHARES = 2, 262_144


def shares_of(cpu_millis: int) -> int:
    """`cpu.shares` of a CPU request in thousandths of a CPU; the smallest possible for none."""
    return min(max(cpu_millis * 1024 // 1000, MIN_SHARES), MAX_SHARES)


def weight_of(shares: int) -> int:
    """`cpu.weight` (v2, 1 to 10000) of a `cpu.shares` value."""
    return 1 + (shares - MIN_SHARES) * 9999 // (MAX_SHARES - MIN_SHARES)


def quota_of(cpu_millis: int) -> int:
    """CFS quota in microseconds per CFS_PERIOD_US of a CPU limit in thousandths; never below what the kernel takes."""
    return max(cpu_millis * CFS_PERIOD_US // 1000, MIN_QUOTA_US)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a cgroup shall be told. None: leave that alone. An empty set of CPUs or nodes is never written.

    cpus: cpuset.cpus. mems: cpuset.mems. quota_us: microseconds per CFS_PERIOD_US, or NO_LIMIT. shares: cpu.shares, converted
    to cpu.weight on v2. memory_bytes: memory.max / memory.limit_in_bytes, or NO_LIMIT.
    """

    cpus: CPUSet | None = None
    mems: NodeMask | None = None
    quota_us: int | None = None
    shares: int | None = None
    memory_bytes: int | None = None

    def __bool__(self) -> bool:
        return self != _NOTHING

    def overlaid(self, later: Settings) -> Settings:
        """These settings after `later` was written too."""
        return Settings(
            cpus=self.cpus if later.cpus is None else later.cpus,
            mems=self.mems if later.mems is None else later.mems,
            quota_us=self.quota_us if later.quota_us is None else later.quota_us,
            shares=self.shares if later.shares is None else later.shares,
            memory_bytes=self.memory_bytes if later.memory_bytes is None else later.memory_bytes,
        )


_NOTHING = Settings()


@dataclass(frozen=True, slots=True)
class Observed:
    """What a cgroup says of itself. None: the file is not there (controller absent, or the root cgroup).

    cpus, mems: as configured; empty on v2 where the parent's are inherited. effective: the CPUs its tasks really may use.
    quota_us: as if the period were CFS_PERIOD_US. shares on v1, weight on v2.
    """

    cpus: CPUSet = field(default_factory=CPUSet)
    effective: CPUSet = field(default_factory=CPUSet)
    mems: NodeMask = 0
    quota_us: int | None = None
    shares: int | None = None
    weight: int | None = None
    memory_bytes: int | None = None


def shares_differ(seen: Observed, shares: int | None) -> bool:
    """Whether the cgroup says something else than these shares; None and an absent file never do."""
    if shares is None:
        return False
    if seen.shares is not None:
        return seen.shares != shares
    return seen.weight is not None and seen.weight != weight_of(shares)


def lacking(seen: Observed, wanted: Settings) -> Settings:
    """What of these settings the cgroup does not say, or does not put in force. A file that is absent lacks nothing."""
    return Settings(
        cpus=wanted.cpus if wanted.cpus is not None and not seen.cpus == seen.effective == wanted.cpus else None,
        mems=wanted.mems if wanted.mems is not None and seen.mems != wanted.mems else None,
        quota_us=wanted.quota_us if seen.quota_us not in (None, wanted.quota_us) else None,
        shares=wanted.shares if shares_differ(seen, wanted.shares) else None,
        memory_bytes=wanted.memory_bytes if seen.memory_bytes not in (None, wanted.memory_bytes) else None,
    )
