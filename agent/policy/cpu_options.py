"""Options of the static CPU manager policy: names, levels, legal pairs (kubelet cm/cpumanager/policy_options.go)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from agent.errors import BadInputError
from agent.policy.feature_gates import FeatureGates
from agent.policy.go_text import parse_bool, quote

FULL_PCPUS_ONLY = "full-pcpus-only"
DISTRIBUTE_ACROSS_NUMA = "distribute-cpus-across-numa"
DISTRIBUTE_ACROSS_CORES = "distribute-cpus-across-cores"
ALIGN_BY_SOCKET = "align-by-socket"
STRICT_RESERVATION = "strict-cpu-reservation"
PREFER_UNCORE = "prefer-align-cpus-by-uncorecache"

_FIELDS: Mapping[str, str] = {
    FULL_PCPUS_ONLY: "full_pcpus_only",
    DISTRIBUTE_ACROSS_NUMA: "distribute_across_numa",
    DISTRIBUTE_ACROSS_CORES: "distribute_across_cores",
    ALIGN_BY_SOCKET: "align_by_socket",
    STRICT_RESERVATION: "strict_reservation",
    PREFER_UNCORE: "prefer_uncore",
}
_ALPHA = frozenset({ALIGN_BY_SOCKET, DISTRIBUTE_ACROSS_CORES})
_BETA = frozenset({DISTRIBUTE_ACROSS_NUMA})
_EXCLUDING_PAIRS = (
    (FULL_PCPUS_ONLY, DISTRIBUTE_ACROSS_CORES),
    (DISTRIBUTE_ACROSS_NUMA, DISTRIBUTE_ACROSS_CORES),
    (PREFER_UNCORE, DISTRIBUTE_ACROSS_CORES),
    (PREFER_UNCORE, DISTRIBUTE_ACROSS_NUMA),
)


class CPUOptionError(BadInputError):
    """An option of cpuManagerPolicyOptions cannot be used."""

    hint = "see cpuManagerPolicyOptions in the configuration"


@dataclass(frozen=True, slots=True)
class StaticOptions:
    """The static policy's options, each off by default."""

    full_pcpus_only: bool = False
    distribute_across_numa: bool = False
    distribute_across_cores: bool = False
    align_by_socket: bool = False
    strict_reservation: bool = False
    prefer_uncore: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str], gates: FeatureGates) -> StaticOptions:
        """Read cpuManagerPolicyOptions. The first fault in name order is reported, in the kubelet's words.

        Raises CPUOptionError for an unknown option, one whose level is gated off, a value that is no Go boolean, and
        pairs that exclude each other.
        """
        values = {_FIELDS[name]: _value(name, options[name], gates) for name in sorted(options) if _known(name)}
        for one, other in _EXCLUDING_PAIRS:
            if values.get(_FIELDS[one]) and values.get(_FIELDS[other]):
                raise CPUOptionError(f"static policy options {one} and {other} can not be used at the same time")
        return cls(**values)


def _known(name: str) -> bool:
    if name not in _FIELDS:
        known = ", ".join(sorted(_FIELDS))
        raise CPUOptionError(f"unknown CPU Manager Policy option: {quote(name)}", hint=f"options are: {known}")
    return True


def _value(name: str, text: str, gates: FeatureGates) -> bool:
    for level, names, enabled in (
        ("Alpha", _ALPHA, gates.cpu_manager_policy_alpha_options),
        ("Beta", _BETA, gates.cpu_manager_policy_beta_options),
    ):
        if name in names and not enabled:
            raise CPUOptionError(
                f"CPU Manager Policy {level}-level Options not enabled, but option {quote(name)} provided",
                hint=f"set featureGates: {{CPUManagerPolicy{level}Options: true}}",
            )
    try:
        return parse_bool(text)
    except ValueError as error:
        raise CPUOptionError(f"bad value for option {quote(name)}: {error}", hint="write true or false") from error
