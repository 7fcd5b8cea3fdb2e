"""A reservation <-> JSON, so that the ledger survives a restart of the accountant.

{"pod", "queue", "preemptible", "target", "seen", "expires"}; target and seen are {"cpu_millis", "memory_bytes"}, expires is a
time on the clock of whoever keeps the ledger (Unix seconds).
"""

from __future__ import annotations

from agent.formats.fields import Fields
from agent.queues.ledger import Reservation
from agent.queues.resize_growth import CPUMemory

_RESERVATION = {"pod", "queue", "preemptible", "target", "seen", "expires"}


def encode_reservation(reservation: Reservation) -> dict[str, object]:
    """The JSON object that `decode_reservation` reads back."""
    return {
        "pod": reservation.pod,
        "queue": reservation.queue,
        "preemptible": reservation.preemptible,
        "target": reservation.target._asdict(),
        "seen": reservation.seen._asdict(),
        "expires": reservation.expires,
    }


def decode_reservation(value: object, path: str) -> Reservation:
    """Raises FieldError naming the field."""
    fields = Fields(value, path)
    fields.only(_RESERVATION)
    return Reservation(
        pod=fields.text("pod"),
        queue=fields.text("queue"),
        preemptible=fields.boolean("preemptible"),
        target=fields.value("target", _amounts),
        seen=fields.value("seen", _amounts),
        expires=fields.seconds("expires"),
    )


def _amounts(value: object, path: str) -> CPUMemory:
    fields = Fields(value, path)
    fields.only({"cpu_millis", "memory_bytes"})
    return CPUMemory(fields.integer("cpu_millis"), fields.integer("memory_bytes"))
