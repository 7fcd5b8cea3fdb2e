"""Which of several accountants answers: the rules of an election by a Lease. What is seen and the time in, what to write out.

As client-go's leader election, with these differences, which make two holders at one time impossible as long as no clock runs
faster than another by lease_seconds / renew_seconds (half as fast again, as set):

* A holder holds for `renew_seconds` from the moment it *sent* its last successful write, whatever happens to its thread
  meanwhile.
* Another one takes a Lease that it has seen unchanged, by its own clock, for as long as the Lease says. Times in the Lease are
  of another machine's clock: they are never compared with anything.
* Every write changes the Lease, even with a clock that stands still: what is not seen to be renewed is taken.
* A Lease that is not there may have been deleted under its holder, and between two looks that miss it there may have been
  another one. So it is made first, held by nobody, and taken once it has been seen unchanged for as long as it says. Whoever
  held the deleted one takes it at once.

Source: client-go tools/leaderelection; coordination.k8s.io/v1.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf

from agent.formats.lease import micro_time
from agent.model.lease import LeaseRecord

RELEASED_SECONDS = 1  # leaseDurationSeconds of a Lease that nobody holds, as client-go writes it; 0 is not valid


@dataclass(frozen=True, slots=True)
class ElectionOptions:
    """identity: of this process and no other. lease_seconds: for how long others leave it alone. renew_seconds: for how long
    it holds after a successful write, less than lease_seconds. retry_seconds: between two looks.
    """

    identity: str
    lease_seconds: int = 15
    renew_seconds: float = 10.0
    retry_seconds: float = 2.0


@dataclass(frozen=True, slots=True)
class Standing:
    """What one candidate knows. seen: the Lease, None where there is none. seen_since: since when it has been like that, on the
    candidate's clock; None before the first look. held_until: when its own hold ends. term: how often a hold began.
    """

    seen: LeaseRecord | None = None
    seen_since: float | None = None
    held_until: float = -inf
    term: int = 0

    def holds(self, now: float) -> bool:
        """Whether it may answer now."""
        return now < self.held_until


def look(standing: Standing, found: LeaseRecord | None, options: ElectionOptions, now: float) -> Standing:
    """The Lease was read, None: it does not exist. now: when the answer was there.

    Another holder ends the own hold at once, and so does a Lease given back, which others take at once; not one that only
    lacks a holder.
    """
    lost = found is not None and (found.holder not in ("", options.identity) or _given_back(found))
    return replace(
        standing,
        seen=found,
        seen_since=now if standing.seen_since is None or found != standing.seen else standing.seen_since,
        held_until=-inf if lost else standing.held_until,
    )


def remaining(standing: Standing, options: ElectionOptions, now: float) -> float:
    """Seconds until it may be claimed, or made if it does not exist; 0: now."""
    if standing.seen_since is None:
        return inf
    found = standing.seen
    if found is None or found.holder == options.identity:
        return 0.0
    if _given_back(found) or (not found.holder and standing.holds(now)):
        term = 0
    else:
        term = found.duration_seconds if found.duration_seconds > 0 else options.lease_seconds
    return max(0.0, standing.seen_since + term - now)


def claim(standing: Standing, options: ElectionOptions, now: float, wall: float) -> LeaseRecord | None:
    """What to write, in the place of the version that was seen; None while another may hold it. wall: Unix time, for people."""
    if remaining(standing, options, now) > 0:
        return None
    found = standing.seen
    renewed = micro_time(wall, unlike="" if found is None else found.renewed)
    if found is None:
        holder, acquired = (options.identity, renewed) if standing.holds(now) else ("", "")
        return LeaseRecord(holder, options.lease_seconds, acquired, renewed, 0)
    if found.holder == options.identity:
        return replace(found, duration_seconds=options.lease_seconds, renewed=renewed)
    transitions = found.transitions + 1
    return LeaseRecord(options.identity, options.lease_seconds, renewed, renewed, transitions, found.version)


def written(standing: Standing, record: LeaseRecord, options: ElectionOptions, sent: float, now: float) -> Standing:
    """The claim was written. record: as it is now, with its version. sent: when the write was begun. A hold that begins anew,
    or after a gap however short, is a new term. One made for nobody begins none.
    """
    if record.holder != options.identity:
        return replace(standing, seen=record, seen_since=now)
    held_until = sent + options.renew_seconds
    begins = now < held_until and not standing.holds(now)
    return Standing(record, now, held_until, standing.term + begins)


def _given_back(found: LeaseRecord) -> bool:
    """Whether its holder has ended in order. One that nobody has held yet, or whose holder was edited away, is waited for."""
    return not found.holder and bool(found.acquired) and found.duration_seconds <= RELEASED_SECONDS


def release(standing: Standing, options: ElectionOptions, wall: float) -> LeaseRecord | None:
    """What to write at an orderly end, once nothing is answered any more; None where there is nothing to give back."""
    found = standing.seen
    if found is None or found.holder != options.identity:
        return None
    renewed = micro_time(wall, unlike=found.renewed)
    return LeaseRecord("", RELEASED_SECONDS, found.acquired, renewed, found.transitions, found.version)
