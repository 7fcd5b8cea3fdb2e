"""What the configuration means on a machine: the managers' settings, the node's capacity and what is left for pods."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

from agent.config import ConfigError
from agent.config_schema import Config
from agent.model.cpuset import CPUSet
from agent.model.machine import Machine
from agent.model.quantity import Quantity, QuantityError
from agent.model.resources import is_memory
from agent.policy.feature_gates import ALL_ALPHA, FeatureGates
from agent.policy.go_text import quote
from agent.policy.managers import ManagerConfig
from agent.policy.node_fit import NodeCapacity
from agent.policy.topology_options import TopologyScope

_MEMORY_SIGNAL = "memory.available"
POD_LEVEL_MANAGERS = "PodLevelResourceManagers"
EXCLUSIVE_RESIZE = ("InPlacePodVerticalScalingExclusiveCPUs", "InPlacePodVerticalScalingExclusiveMemory")


def capacity(machine: Machine, config: Config) -> dict[str, Quantity]:
    """The node's whole amounts: CPUs, bytes of memory and of every hugepage size, pods."""
    amounts: dict[str, int] = {"cpu": machine.topology.num_cpus, "pods": config.node.maxPods}
    for node in machine.numa_memory.values():
        for resource, size in node.items():
            amounts[resource] = amounts.get(resource, 0) + size
    return {resource: Quantity(Fraction(amount)) for resource, amount in amounts.items()}


def reserved(machine: Machine, config: Config) -> dict[str, Quantity]:
    """Per resource what pods never get: kubeReserved + systemReserved, for memory also the hard eviction threshold.

    An explicit reservedSystemCPUs list replaces the CPU sum, as in the kubelet. Raises ConfigError.
    """
    sums: dict[str, Fraction] = {}
    for source in (config.kubeReserved, config.systemReserved):
        for resource, text in source.items():
            sums[resource] = sums.get(resource, Fraction(0)) + Quantity.parse(text).number
    if config.reservedSystemCPUs:
        sums["cpu"] = Fraction(len(CPUSet.parse(config.reservedSystemCPUs)))
    threshold = _eviction_threshold(machine, config)
    sums["memory"] = sums.get("memory", Fraction(0)) + threshold
    return {resource: Quantity(amount) for resource, amount in sums.items()}


def _eviction_threshold(machine: Machine, config: Config) -> Fraction:
    text = config.evictionHard.get(_MEMORY_SIGNAL, "0")
    try:
        amount = Quantity.parse(text.removesuffix("%")).number
    except QuantityError as error:
        raise ConfigError(f"evictionHard {_MEMORY_SIGNAL}: {text!r} is neither a quantity nor a percentage") from error
    if amount < 0:
        raise ConfigError(f"evictionHard {_MEMORY_SIGNAL}: {text!r} is negative")
    if not text.endswith("%"):
        return amount
    if amount > 100:
        raise ConfigError(f"evictionHard {_MEMORY_SIGNAL}: {text!r} is more than there is")
    total = sum(node.get("memory", 0) for node in machine.numa_memory.values())
    return Fraction(int(total * amount / 100))


def node_capacity(machine: Machine, config: Config) -> NodeCapacity:
    """Capacity and allocatable (capacity minus reserved, never below zero) for node fit."""
    whole = capacity(machine, config)
    kept = reserved(machine, config)
    left = {}
    for resource, amount in whole.items():
        rest = amount.number - kept[resource].number if resource in kept else amount.number
        left[resource] = Quantity(max(rest, Fraction(0)))
    return NodeCapacity(whole, left)


def feature_gates(config: Config) -> Mapping[str, bool]:
    """The configured gates; where the kubelet's configuration does not rule, the pod-level managers are on by default, unless
    AllAlpha: false says that nothing of their stage shall be.

    `resize.exclusive` turns on those for the resize of pinned pods.
    """
    gates = dict(config.featureGates)
    on = FeatureGates.of({**gates, POD_LEVEL_MANAGERS: False})
    if config.resize.exclusive:
        gates |= dict.fromkeys(EXCLUSIVE_RESIZE, True)
    if config.kubeletConfig is not None or not on.pod_level_resources or gates.get(ALL_ALPHA) is False:
        return gates
    return {POD_LEVEL_MANAGERS: True, **gates}


def manager_config(machine: Machine, config: Config) -> ManagerConfig:
    """The resource managers' settings. Raises ConfigError."""
    kept = reserved(machine, config)
    scope = config.topologyManagerScope
    if scope not in list(TopologyScope):  # a kubelet looks at it with policy none too (ValidateKubeletConfiguration)
        raise ConfigError(
            f"invalid configuration: topologyManagerScope (--topology-manager-scope) {quote(scope)} must be one of: "
            '"container", or "pod"'
        )
    explicit = CPUSet.parse(config.reservedSystemCPUs)
    reserved_memory: dict[int, Mapping[str, int]] = {}
    for entry in config.reservedMemory:
        if entry.numaNode in reserved_memory:
            raise ConfigError(f"reservedMemory: NUMA node {entry.numaNode} is given twice")
        reserved_memory[entry.numaNode] = {
            resource: Quantity.parse(text).value() for resource, text in entry.limits.items()
        }
    return ManagerConfig(
        cpu_policy=config.cpuManagerPolicy,
        cpu_options=config.cpuManagerPolicyOptions,
        reserved_cpus=explicit,
        reserved_cpu_millis=kept["cpu"].milli_value() if "cpu" in kept else 0,
        memory_policy=config.memoryManagerPolicy,
        reserved_memory=reserved_memory,
        node_reserved_memory={r: q.value() for r, q in kept.items() if is_memory(r)},
        topology_policy=config.topologyManagerPolicy,
        topology_scope=scope,
        topology_options=config.topologyManagerPolicyOptions,
        feature_gates=feature_gates(config),
        kubelet_version=config.kubeletVersion,
        min_shared_cpus=config.node.minSharedCPUs,
    )
