"""The resource managers of one node: the kubelet's settings, checked against the machine they are for.

`start` refuses what the kubelet refuses, with its texts (kubelet cm/container_manager_linux.go, NewContainerManager).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from agent.errors import BadInputError
from agent.model.cpuset import CPUSet
from agent.model.machine import Machine
from agent.model.state import PolicyInForce
from agent.policy import cpu_static, memory_static
from agent.policy.cpu_options import CPUOptionError, StaticOptions
from agent.policy.cpu_static import CPUManager, CPUReservationError
from agent.policy.feature_gates import FeatureGateError, FeatureGates
from agent.policy.go_text import print_map, quote
from agent.policy.memory_static import MemoryManager
from agent.policy.topology_options import (
    TopologyOptionError,
    TopologyPolicy,
    TopologyPolicyName,
    TopologyScope,
    validate_topology_options,
)


class StartError(BadInputError):
    """The managers cannot start with this configuration on this machine. `stage`: the manager that refuses."""

    def __init__(self, stage: str, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.stage = stage


@dataclass(frozen=True, slots=True)
class ManagerConfig:
    """The resource managers' settings as configured: names and meanings of KubeletConfiguration.

    reserved_cpus: reservedSystemCPUs. reserved_cpu_millis: kubeReserved + systemReserved cpu; None with an explicit set means
    that set's size. reserved_memory: NUMA id -> resource -> bytes. node_reserved_memory: resource -> bytes that the node
    keeps (kubeReserved + systemReserved + evictionHard); None means exactly the sum of reserved_memory. min_shared_cpus:
    CPUs that exclusive grants must leave shared; None means 1 with strict reservation, else 0.
    """

    cpu_policy: str = "none"
    cpu_options: Mapping[str, str] = field(default_factory=dict)
    reserved_cpus: CPUSet = field(default_factory=CPUSet)
    reserved_cpu_millis: int | None = None
    memory_policy: str = "None"
    reserved_memory: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    node_reserved_memory: Mapping[str, int] | None = None
    topology_policy: str = "none"
    topology_scope: str = "container"
    topology_options: Mapping[str, str] = field(default_factory=dict)
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    kubelet_version: str = "1.36"
    min_shared_cpus: int | None = None


@dataclass(frozen=True, slots=True)
class Managers:
    """What decisions need to know beside the grants and the pod. cpu, memory: None with the policies `none` and `None`.

    config: what they were started with.
    """

    machine: Machine
    gates: FeatureGates
    topology: TopologyPolicy
    cpu: CPUManager | None
    memory: MemoryManager | None
    min_shared_cpus: int = 0
    config: ManagerConfig = field(default_factory=ManagerConfig)

    @property
    def aligned(self) -> bool:
        """Whether hints are asked at all: with topology policy `none` they are not, whatever the scope."""
        return self.topology.name is not TopologyPolicyName.NONE

    @property
    def effective_scope(self) -> TopologyScope:
        """The scope that decides; with topology policy `none` containers are taken one by one."""
        return self.topology.scope if self.aligned else TopologyScope.CONTAINER


def start(machine: Machine, config: ManagerConfig) -> Managers:
    """The managers for this machine. Raises StartError with the kubelet's text for the first manager that refuses."""
    try:
        gates = FeatureGates.of(config.feature_gates, kubelet_version=config.kubelet_version)
    except FeatureGateError as error:
        raise StartError("gates", str(error), hint=error.hint) from error
    topology = _topology(machine, config)
    cpu = _cpu(machine, config, gates)
    memory = _memory(machine, config)
    if config.min_shared_cpus is not None:
        min_shared = config.min_shared_cpus
    else:
        min_shared = 1 if cpu is not None and cpu.options.strict_reservation else 0
    return Managers(machine, gates, topology, cpu, memory, min_shared, config)


def _topology(machine: Machine, config: ManagerConfig) -> TopologyPolicy:
    try:
        return validate_topology_options(
            config.topology_policy,
            config.topology_scope,
            config.topology_options,
            machine.numa_mask,
            machine.distances,
        )
    except TopologyOptionError as error:
        raise StartError("topology_manager_new", str(error), hint=error.hint) from error


def _cpu(machine: Machine, config: ManagerConfig, gates: FeatureGates) -> CPUManager | None:
    stage = "cpu_manager_new"
    if config.cpu_policy == "none":
        if config.cpu_options:
            given = print_map(config.cpu_options)
            raise StartError(
                stage,
                f"new none policy error: None policy: received unsupported options={given}",
                hint="remove cpuManagerPolicyOptions or set cpuManagerPolicy: static",
            )
        return None
    if config.cpu_policy != "static":
        raise StartError(
            stage, f"unknown policy: {quote(config.cpu_policy)}", hint="set cpuManagerPolicy to none or static"
        )
    millis = config.reserved_cpu_millis
    count = len(config.reserved_cpus) if millis is None else -(-millis // 1000)
    if count <= 0:
        raise StartError(
            stage,
            "[cpumanager] the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero",
            hint="set reservedSystemCPUs, or cpu in systemReserved or kubeReserved",
        )
    try:
        options = StaticOptions.parse(config.cpu_options, gates)
        _check_align_by_socket(machine, config, options)
        return cpu_static.reserve(machine.topology, options, config.reserved_cpus, count)
    except (CPUOptionError, CPUReservationError) as error:
        raise StartError(stage, f"new static policy error: {error}", hint=error.hint) from error


def _check_align_by_socket(machine: Machine, config: ManagerConfig, options: StaticOptions) -> None:
    if not options.align_by_socket:
        return
    if config.topology_policy == "single-numa-node":
        raise CPUOptionError(  # "Topolgy" is the kubelet's spelling, on which dashboards match
            "Topolgy manager single-numa-node policy is incompatible with CPUManager align-by-socket policy option"
        )
    if len(machine.topology.socket_masks) > len(machine.topology.numa_masks):
        raise CPUOptionError(
            "Align by socket is not compatible with hardware where number of sockets are more than number of NUMA"
        )


def policy_in_force(managers: Managers, config: ManagerConfig) -> PolicyInForce:
    """What the state remembers of the rules it was made under."""
    return PolicyInForce(
        cpu_policy=config.cpu_policy,
        cpu_options=dict(config.cpu_options),
        online=managers.machine.topology.all,
        reserved_cpus=managers.cpu.reserved if managers.cpu is not None else config.reserved_cpus,
        memory_policy=config.memory_policy,
        reserved_memory=config.reserved_memory if managers.memory is not None else {},
        topology_policy=str(managers.topology.name),
        topology_scope=str(managers.topology.scope),
        topology_options=dict(config.topology_options),
    )


def _memory(machine: Machine, config: ManagerConfig) -> MemoryManager | None:
    stage = "memory_manager_new"
    match config.memory_policy:
        case "None":
            return None
        case "BestEffort":
            raise StartError(
                stage,
                'policy "BestEffort" is not available for platform "linux"',
                hint="set memoryManagerPolicy to None or Static",
            )
        case "Static":
            pass
        case other:
            raise StartError(stage, f"unknown policy: {quote(other)}", hint="set memoryManagerPolicy to None or Static")
    node_reserved = config.node_reserved_memory
    if node_reserved is None:
        sums: dict[str, int] = {}
        for amounts in config.reserved_memory.values():
            for resource, amount in amounts.items():
                sums[resource] = sums.get(resource, 0) + amount
        node_reserved = sums
    try:
        return memory_static.reserve(machine, config.reserved_memory, node_reserved)
    except memory_static.MemoryReservationError as error:
        raise StartError(stage, str(error), hint=error.hint) from error
