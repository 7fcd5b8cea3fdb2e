"""The accountant's metrics: KAI's queue series under their own names and units, and `pinfold_queue_*`.

Those of every queue are `agent.serve.queue_gauges`, counters `agent.serve.queue_series`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

from agent.queues.accountant_view import AccountantView
from agent.serve.accountant import AccountantService
from agent.serve.exposition import CONTENT_TYPE, family_text, label_text, write_metrics
from agent.serve.http_messages import Request, Response
from agent.serve.metrics import tallied
from agent.serve.queue_gauges import QueueGauges
from agent.serve.series import Tally

_GAUGE = "gauge"


class QueueMetrics:
    """Written from one view of the accountant; while nothing changes, once.

    standby: why another replica answers, "" where this one does. One that does not knows less: its amounts would only mislead.
    """

    def __init__(self, service: AccountantService, tally: Tally, standby: Callable[[], str] = lambda: "") -> None:
        self._service = service
        self._tally = tally
        self._standby = standby
        self._writing = threading.Lock()
        self._gauges = QueueGauges()
        self._written: tuple[AccountantView, Sequence[bytes]] | None = None

    def answer(self, _: Request) -> Response:
        """For an HTTPServer."""
        return Response(self.text(), CONTENT_TYPE)

    def text(self) -> bytes:
        """Everything there is to tell now. Megabytes, so they are bytes already where they leave the worker thread."""
        answers = not self._standby()
        told = "1 where this replica answers, 0 where another one does, or none."
        head = family_text("pinfold_queue_answers", _GAUGE, told, [("", float(answers))])
        amounts = self._of(self._service.view()) if answers else ()
        return b"".join([head.encode(), *amounts, write_metrics(tallied(self._tally)).encode()])

    def _of(self, view: AccountantView) -> Sequence[bytes]:
        with self._writing:  # one writes, the others wait and share
            written = self._written
            if written is None or written[0] is not view:
                parts = [*self._gauges.text(view), "".join(_state(view)).encode()]
                written = self._written = (view, parts)
            return written[1]


def _state(view: AccountantView) -> Iterator[str]:
    taken = view.capture
    over = [
        (label_text({"queue": each.queue, "resource": each.resource.value, "bound": each.bound_kind.value}), 1.0)
        for each in view.violations
    ]
    yield family_text("pinfold_queue_over_bound", _GAUGE, "1 where a queue holds more than a bound allows.", over)
    stale = len(taken.stale_since)
    states = {"counted": len(taken.nodes) - stale, "stale": stale, "missing": len(taken.missing)}
    nodes = [(label_text({"state": state}), float(count)) for state, count in states.items()]
    yield family_text("pinfold_queue_nodes", _GAUGE, "Nodes by what is known of them.", nodes)
    yield _one("in_sync", "1 where every node is accounted for.", taken.complete)
    yield _one("reservations", "Admitted resizes that are waited for.", len(taken.ledger.reservations))
    yield _one("disagreements", "Pods on which two sources differ.", sum(map(len, taken.disagreements.values())))
    yield _one("refused_objects", "Objects that could not be used.", len(taken.problems))
    unknown = sum(totals.pods for totals in view.unknown.values())
    yield _one("uncharged_pods", "Pods whose queue does not exist, or that name none.", unknown)


def _one(name: str, text: str, value: float) -> str:
    return family_text(f"pinfold_queue_{name}", _GAUGE, text, [("", float(value))])
