"""Claims: which application runs a job at a time. Source: FORMAT.md 13.

A claim is an object that is created under a name made of job, time and attempt, so only one of many
applications gets it. Clocks play no part: applications whose clocks differ claim the same times.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from sparklog.core.errors import OutcomeUnknown
from sparklog.log.effects import Protocol, delete, get, list_after, put
from sparklog.log.layout import run_key, run_of_key, runs_prefix
from sparklog.store.base import PutOutcome

FORMAT_VERSION: Final = 1
TRIES_MAX: Final = 8
"""How often a claim whose outcome stays unknown is put again."""
KEPT: Final = 20
"""Claims of a job that stay; whoever makes a new one deletes older ones."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One run of a job that somebody does, or has done."""

    job: str
    scheduled_ms: int
    attempt: int
    run_id: str = ""
    claimed_ms: int = 0
    application: str = ""
    """Who: host and process."""

    @property
    def key(self) -> str:
        """Return the object's name."""
        return run_key(self.job, self.scheduled_ms, self.attempt)


def take(claim: Claim) -> Protocol[bool]:
    """Claim a run; returns whether it is ours. One put and one listing.

    Raises:
        OutcomeUnknown: the store does not tell; nobody may run it then.
    """
    if not (yield from _created(claim)):
        return False
    # A name is free again once it was deleted; then there are newer ones.
    newer = yield from list_after(runs_prefix(claim.job), claim.key)
    if any(run_of_key(info.key) for info in newer):
        return False
    yield from _drop_old(claim.job)
    return True


def newest(job: str) -> Protocol[Claim | None]:
    """Return the newest claim of a job, or None if it was never seen. A listing and a GET."""
    listed = yield from list_after(runs_prefix(job), "")
    found = [info.key for info in listed if run_of_key(info.key) is not None]
    for key in reversed(found):
        stored = yield from get(key)
        named = run_of_key(key)
        if stored is not None and named is not None:
            return _decoded(stored, *named)
    return None


def _created(claim: Claim) -> Protocol[bool]:
    data = _encoded(claim)
    for _ in range(TRIES_MAX):
        outcome = yield from put(claim.key, data)
        if outcome is PutOutcome.CREATED:
            return True
        stored = yield from get(claim.key)
        if stored is not None:
            # A put that was repeated on the way meets its own object.
            return stored == data
    raise OutcomeUnknown(f"the store does not tell whether a run is claimed. object={claim.key}")


def _drop_old(job: str) -> Protocol[None]:
    listed = yield from list_after(runs_prefix(job), "")
    found = [info.key for info in listed if run_of_key(info.key) is not None]
    for key in found[:-KEPT]:
        yield from delete(key)


def _encoded(claim: Claim) -> bytes:
    document = {
        "format": FORMAT_VERSION,
        "run_id": claim.run_id,
        "claimed": claim.claimed_ms,
        "application": claim.application,
    }
    return json.dumps(document, separators=(",", ":")).encode()


def _decoded(data: bytes, job: str, scheduled_ms: int, attempt: int) -> Claim:
    """Return a stored claim; of a damaged one what its name says, which is what matters."""
    try:
        document = json.loads(data)
        run_id, claimed = str(document["run_id"]), int(document["claimed"])
        application = str(document["application"])
    except (ValueError, KeyError, TypeError):
        return Claim(job, scheduled_ms, attempt, claimed_ms=scheduled_ms)
    return Claim(job, scheduled_ms, attempt, run_id, claimed, application)
