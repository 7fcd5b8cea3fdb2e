"""The reservation ledger <-> JSON, so that it survives a restart of the accountant.

{"schema": 1, "reservations": {"<pod UID>": {"pod", "queue", "preemptible", "target", "seen", "expires"}}}; target and
seen are {"cpu_millis", "memory_bytes"}, expires is a time on the clock of whoever keeps the ledger (Unix seconds).
"""

from __future__ import annotations

from agent.formats.fields import FieldError, Fields
from agent.queues.ledger import MAX_RESERVATIONS, Ledger, Reservation
from agent.queues.resize_admission import CPUMemory

SCHEMA = 1

_RESERVATION = {"pod", "queue", "preemptible", "target", "seen", "expires"}


def encode_ledger(ledger: Ledger) -> dict[str, object]:
    """The JSON object that `decode_ledger` reads back to an equal ledger."""
    return {
        "schema": SCHEMA,
        "reservations": {uid: encode_reservation(each) for uid, each in ledger.reservations.items()},
    }


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


def decode_ledger(document: object) -> Ledger:
    """Raises FieldError naming the field: another schema, an absent, unknown or wrong field, more reservations than are
    kept.
    """
    top = Fields(document, "")
    if (schema := top.integer("schema")) != SCHEMA:
        raise FieldError("schema", f"{schema} is not read here, only {SCHEMA}")
    top.only({"schema", "reservations"})
    reservations = top.mapping("reservations", decode_reservation)
    if len(reservations) > MAX_RESERVATIONS:
        raise FieldError("reservations", f"has {len(reservations)} entries, at most {MAX_RESERVATIONS} are kept")
    return Ledger(reservations)


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
