"""What the records of one replay share: the machines defined so far, and the profile asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from agent.errors import BadInputError
from agent.model.machine import Machine, RawCPU, discover

JSONObject: TypeAlias = Mapping[str, Any]


@dataclass
class Context:
    """machines: by the name a `topology` record gave them. profile: `0.18` or `main` (queue kinds).

    current: id of the record that is being answered. last: id of the last record of kind `admission` that the next one may
    follow, and the node after it.
    """

    machines: dict[str, Machine] = field(default_factory=dict)
    profile: str = "0.18"
    current: str = ""
    last: tuple[str, Any] | None = None

    def machine(self, ref: str | JSONObject) -> Machine:
        """The machine a record means: by name, or the topology object itself in that place.

        Raises BadInputError for a name that no earlier record defined.
        """
        if not isinstance(ref, str):
            return decode_machine(ref)
        if ref not in self.machines:
            raise BadInputError(f"topology {ref!r} is not defined by an earlier record of kind topology")
        return self.machines[ref]


Handler: TypeAlias = Callable[[JSONObject, Context], Mapping[str, Any]]


def decode_machine(record: JSONObject) -> Machine:
    """`input` of a record of kind `topology`."""
    cpus = [RawCPU(c["id"], c["core"], c["socket"], c["numa"], c.get("uncore")) for c in record["cpus"]]
    return Machine(
        topology=discover(cpus),
        numa_memory={int(node): dict(amounts) for node, amounts in (record.get("numa_memory") or {}).items()},
        distances={int(node): tuple(row) for node, row in (record.get("distances") or {}).items()},
    )
