"""A race for fresh names: shows whether a store's put-if-absent holds under concurrency.

A store that checks for the key and writes the object a moment later lets concurrent creates both
succeed. Both writers would then acknowledge their records, and one would lose them. So `race`
creates one fresh name from several threads at once, each over its own connection. Then it compares
the store's answers with the stored object.

Exactly one create may succeed, and the object must be the one that it sent, whole.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum

from sparklog.core.clock import Clock
from sparklog.core.entropy import Entropy, new_nonce
from sparklog.core.errors import InvalidConfig, SparklogError
from sparklog.store.base import ObjectNotFound, ObjectStore, PutOutcome, TransientStoreError
from sparklog.store.starting_line import STARTING_LINE, StartingLine

RACERS = 8
"""Concurrent creates of one name."""
NAMES = 12
"""Names that must each have one winner. Adobe S3Mock 5.2.0 loses two of five races, so it passes
the probe once in 500 times. With four names it would pass once in ten."""
BODY_BYTES = 4096
"""Long enough that a mixture of two bodies shows."""
_EXTRA_NAMES = 8
"""Names raced again because the store was busy or an answer got lost."""
_TRIES = 10
_PAUSE_S = 0.05


class RaceOutcome(Enum):
    """The result of the race for one name."""

    HOLDS = "one create succeeded, and its object is there"
    BROKEN = "the store lost the race"
    UNCLEAR = "too few answers"


def judge(
    outcomes: Sequence[PutOutcome], bodies: Sequence[bytes], stored: bytes | None
) -> RaceOutcome:
    """Judge one raced name: `outcomes[i]` answers the create of `bodies[i]`; `stored` is there now.

    An answer that got lost is no proof of anything: its create may have succeeded or not.
    """
    winners = [n for n, outcome in enumerate(outcomes) if outcome is PutOutcome.CREATED]
    lost = [n for n, outcome in enumerate(outcomes) if outcome is PutOutcome.UNKNOWN]
    if len(winners) > 1:
        return RaceOutcome.BROKEN
    if stored is None:
        return RaceOutcome.BROKEN if winners else RaceOutcome.UNCLEAR
    if stored not in [bodies[n] for n in (winners or lost)]:
        return RaceOutcome.BROKEN if winners or stored not in bodies else RaceOutcome.UNCLEAR
    if not winners or len(lost) > len(outcomes) // 2:
        return RaceOutcome.UNCLEAR
    return RaceOutcome.HOLDS


def race(store: ObjectStore, prefix: str, clock: Clock, entropy: Entropy) -> None:
    """Race for `NAMES` fresh names below `prefix`; they are deleted afterwards.

    Cost: `NAMES` times (`RACERS` puts, one get, one delete).

    Raises:
        InvalidConfig: the store lost a race; use another one.
        `TransientStoreError`: too few answers; try again.
    """
    held = 0
    with ThreadPoolExecutor(RACERS, "sparklog-probe") as pool:
        for _ in range(NAMES + _EXTRA_NAMES):
            key = f"{prefix}-{new_nonce(entropy)}"
            bodies = [_body(number, entropy) for number in range(RACERS)]
            outcomes = _raced(store, key, bodies, clock, pool)
            stored = _stored(store, key)
            _delete(store, key)
            verdict = judge(outcomes, bodies, stored)
            if verdict is RaceOutcome.BROKEN:
                raise _refused(store, outcomes)
            held += verdict is RaceOutcome.HOLDS
            if held == NAMES:
                return
    raise TransientStoreError(f"too few answers to the probe. root={store.url}", unsettled=False)


def _body(number: int, entropy: Entropy) -> bytes:
    text = f"{number} {new_nonce(entropy)}\n".encode()
    return (text * (BODY_BYTES // len(text) + 1))[:BODY_BYTES]


def _raced(
    store: ObjectStore, key: str, bodies: Sequence[bytes], clock: Clock, pool: ThreadPoolExecutor
) -> list[PutOutcome]:
    """Create `key` with each body at the same moment, and return what the store said to each.

    Raises:
        `TransientStoreError`: the store is busy for too long. InvalidConfig: it denies access.
    """
    start, line = threading.Barrier(len(bodies)), StartingLine(len(bodies))

    def create(body: bytes) -> PutOutcome:
        token = STARTING_LINE.set(line)
        try:
            start.wait()
            return _create(store, key, body, clock)
        finally:
            STARTING_LINE.reset(token)

    return list(pool.map(create, bodies))


def _create(store: ObjectStore, key: str, body: bytes, clock: Clock) -> PutOutcome:
    """Create `key`. A refusal for being busy, which wrote nothing, is tried again."""
    for tried in range(1, _TRIES + 1):
        try:
            return store.put_if_absent(key, body)
        except TransientStoreError as transient:
            if transient.unsettled:
                return PutOutcome.UNKNOWN
            if tried == _TRIES:
                raise
            clock.sleep_s(_PAUSE_S * tried)
    raise AssertionError("unreachable")


def _stored(store: ObjectStore, key: str) -> bytes | None:
    try:
        return store.get(key)
    except ObjectNotFound:
        return None


def _delete(store: ObjectStore, key: str) -> None:
    try:
        store.delete(key)
    except SparklogError:
        pass  # what stays is a small object that listings leave out


def _refused(store: ObjectStore, outcomes: Sequence[PutOutcome]) -> InvalidConfig:
    winners = sum(outcome is PutOutcome.CREATED for outcome in outcomes)
    what = (
        f"it told {winners} of {len(outcomes)} concurrent writers of one new name that they had "
        "created it"
        if winners > 1
        else "it kept another object than that of the writer whose create succeeded"
    )
    return InvalidConfig(
        f"this store loses records when writers race: {what}. Use a store that honours "
        "If-None-Match on concurrent puts, such as Amazon S3, MinIO, Ceph or versitygw. "
        f"root={store.url}"
    )
