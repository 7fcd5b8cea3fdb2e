"""The validating webhook for `pods/resize`: AdmissionReview in, the accountant's answer out. Transport is `agent.serve.http`.

Decided on the event loop itself: a review costs about a millisecond, and one thread makes no two resizes race. Only the
reservation's way to the disk is waited for, which reviews that are there at one time share: eight of them wake the writer once.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from concurrent.futures import Future

from agent.formats.admission_review import (
    MAX_BYTES,
    AdmissionAnswer,
    AdmissionRequest,
    ReviewedPodError,
    ReviewError,
    decode_review,
    encode_answer,
    reviewed_pods,
)
from agent.queues.resize_admission import ResizeReason
from agent.serve.accountant import AccountantService, ResizeVerdict
from agent.serve.accountant_store import StoreError
from agent.serve.http_connection import Limits, LoopPosting
from agent.serve.http_messages import Request, Response
from agent.serve.queue_series import (
    LEDGER_WRITE,
    NOT_A_RESIZE,
    REVIEW_SECONDS,
    REVIEWS,
    STANDBY,
    UNREADABLE,
    UNREADY,
)
from agent.serve.series import Tally

log = logging.getLogger(__name__)

PATH = "/validate-resize"
JSON = "application/json"

# what depends on charges and reservations, of which only the replica that answers knows enough
JUDGED = frozenset({ResizeReason.FITS, ResizeReason.REJECTED, ResizeReason.LEDGER_FULL})

# An API server keeps a connection of its own for every review under way, and idle ones for 90 seconds (Go's transport): it
# should be the one that closes them.
WEBHOOK_LIMITS = Limits(connections=1024, idle_seconds=120.0, body_seconds=5.0, large_bodies=16)


class ResizeWebhook:
    """fail_open: what cannot be judged yet, or read, is admitted with a warning, as KAI does; False rejects growth then.

    standby: why another replica is to be asked, "" where this one is. One that is not to be asked judges no growth.
    """

    def __init__(
        self,
        service: AccountantService,
        tally: Tally,
        *,
        fail_open: bool = True,
        standby: Callable[[], str] = lambda: "",
    ) -> None:
        self._service = service
        self._tally = tally
        self._fail_open = fail_open
        self._standby = standby
        self._commits = _Commits(service.commit)

    def posting(self) -> LoopPosting:
        """For an HTTPServer, under PATH."""
        return LoopPosting(self.answer, MAX_BYTES)

    async def answer(self, request: Request) -> Response:
        """One review. A body that is none gets 400: without its uid there is nothing to answer to."""
        begin = time.perf_counter()
        try:
            review = decode_review(request.body)
        except ReviewError as error:
            self._count("rejected", UNREADABLE)
            return Response(f"{error}\n", status=400)
        answer, reason = await self._decide(review)
        self._count("admitted" if answer.allowed else "rejected", reason)
        self._tell(review, answer, reason)
        body = encode_answer(review.uid, answer)
        self._tally.observe(REVIEW_SECONDS, time.perf_counter() - begin)
        return Response(body, JSON)

    async def _decide(self, review: AdmissionRequest) -> tuple[AdmissionAnswer, str]:
        if not review.is_pod_resize:
            return AdmissionAnswer(True), NOT_A_RESIZE
        try:
            old, new = reviewed_pods(review)
        except ReviewedPodError as error:
            return self._unjudged(f"{review.namespace}/{review.name}", str(error), 400, "BadRequest"), UNREADABLE
        why = self._standby()
        try:
            verdict, durable = self._service.begin_resize(old, new, reserve=not review.dry_run and not why)
            if durable is not None:
                await self._commits.wait(durable)
        except StoreError as error:
            # Without its reservation this growth could be given away a second time: open or not, it must wait.
            log.error("resize not admitted: %s", error)
            text = (
                f"resize rejected: pod {old.namespaced_name}: the reservation ledger cannot be written; try again later"
            )
            return AdmissionAnswer(False, text, 500, "InternalError"), LEDGER_WRITE
        why = why or self._standby()  # asked again: the disk may have taken its time
        if why and verdict.answer.reason in JUDGED:
            return self._unjudged(old.namespaced_name, why, 503, "ServiceUnavailable"), STANDBY
        if verdict.answer.allowed and verdict.unready is not None:
            return self._unjudged(old.namespaced_name, verdict.unready.value, 503, "ServiceUnavailable"), UNREADY
        return _answer(verdict), verdict.answer.reason.name

    def _unjudged(self, pod: str, why: str, code: int, reason: str) -> AdmissionAnswer:
        if self._fail_open:
            return AdmissionAnswer(True, warnings=[f"pinfold: admitted without a check of its queues: {why}"])
        return AdmissionAnswer(
            False, f"resize rejected: pod {pod}: cannot be judged: {why}; try again later", code, reason
        )

    def _count(self, answer: str, reason: str) -> None:
        self._tally.add(REVIEWS, answer=answer, reason=reason)

    def _tell(self, review: AdmissionRequest, answer: AdmissionAnswer, reason: str) -> None:
        """Rejections are what people ask about; admissions would fill a log."""
        if not answer.allowed:
            log.info("resize rejected pod=%s/%s reason=%s: %s", review.namespace, review.name, reason, answer.message)


class _Commits:
    """Waits on the event loop for writes that several reviews share. begin: lets what is entered so far be written."""

    def __init__(self, begin: Callable[[], None]) -> None:
        self._begin = begin
        self._done: Future[None] | None = None
        self._waiting: asyncio.Future[None] | None = None

    async def wait(self, done: Future[None]) -> None:
        """Wait until it is done; raises what has failed. The write begins after all that the loop has at hand now."""
        if self._waiting is None or self._done is not done:
            self._done, self._waiting = done, asyncio.wrap_future(done)
            asyncio.get_running_loop().call_soon(self._begin)
        await asyncio.shield(self._waiting)  # a client that leaves takes nothing from the others


def _answer(verdict: ResizeVerdict) -> AdmissionAnswer:
    found = verdict.answer
    audit = {"reason": found.reason.name}
    if found.group is not None:
        audit["queue"] = found.group.queue
    return AdmissionAnswer(found.allowed, "" if found.allowed else found.message, audit=audit)
