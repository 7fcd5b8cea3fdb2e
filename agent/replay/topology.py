"""Records of kind `topology`: a machine as Linux reports it, answered with the kubelet's discovered form."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agent.replay.context import Context, JSONObject, decode_machine


def replay(record_input: JSONObject, context: Context) -> Mapping[str, Any]:
    """The discovered form. Naming the machine for later records is the runner's part."""
    topology = decode_machine(record_input).topology
    return {
        "num_cpus": topology.num_cpus,
        "num_cores": len(topology.core_masks),
        "num_sockets": len(topology.socket_masks),
        "num_numa_nodes": len(topology.numa_masks),
        "num_uncore_caches": len(topology.uncore_masks),
        "cpus_per_core": topology.cpus_per_core,
        "cpus_per_socket": topology.cpus_per_socket,
        "cpus_per_uncore": topology.cpus_per_uncore,
        "cpu": {
            str(cpu.id): {"core": cpu.core, "socket": cpu.socket, "numa": cpu.numa, "uncore": cpu.uncore}
            for cpu in topology.cpus
        },
    }
