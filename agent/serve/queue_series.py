"""What the accountant counts about its own work; its gauges are `agent.serve.queue_metrics`."""

from __future__ import annotations

from agent.queues.accounting import Taken
from agent.queues.resize_admission import ResizeReason
from agent.serve.series import Series

REVIEWS = "pinfold_queue_resize_reviews_total"
REVIEW_SECONDS = "pinfold_queue_resize_review_duration_seconds"
REPORTS = "pinfold_queue_reports_total"

# reasons beside those of the check itself
UNREADABLE = "UNREADABLE"
NOT_A_RESIZE = "NOT_A_RESIZE"
UNREADY = "UNREADY"
STANDBY = "STANDBY"  # another replica holds the lease
LEDGER_WRITE = "LEDGER_WRITE"
REFUSED = "refused"  # of reports: not readable, or not from the node it names

_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1)

QUEUE_SERIES = (
    Series(
        REVIEWS,
        "Resizes that were reviewed, by answer and reason.",
        {
            "answer": ("admitted", "rejected"),
            "reason": (*(each.name for each in ResizeReason), UNREADABLE, NOT_A_RESIZE, UNREADY, STANDBY, LEDGER_WRITE),
        },
    ),
    Series(REVIEW_SECONDS, "Time of a review from its last byte to its answer.", buckets=_SECONDS),
    Series(REPORTS, "Node reports, by what became of them.", {"taken": (*(each.value for each in Taken), REFUSED)}),
)
