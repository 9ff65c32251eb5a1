"""Counters of requests by kind and label, with their bytes; and latencies.

An object store bills requests, so every store counts its own. Kinds are `get`, `put`, `list` (one
per page), `delete` and `head`; a label is a topic name, or '' for none. A repeated request counts
again. Latencies are seconds.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

from sparklog.core.per_process import PerProcess


@dataclass(frozen=True, slots=True)
class RequestCount:
    """Requests made and bytes moved."""

    requests: int
    bytes: int

    def __add__(self, other: RequestCount) -> RequestCount:
        """Return the sum."""
        return RequestCount(self.requests + other.requests, self.bytes + other.bytes)

    def __sub__(self, other: RequestCount) -> RequestCount:
        """Return the difference."""
        return RequestCount(self.requests - other.requests, self.bytes - other.bytes)


NOTHING = RequestCount(0, 0)

Snapshot = Mapping[tuple[str, str], RequestCount]
"""(kind, label) to count."""


def diff(before: Snapshot, after: Snapshot) -> Snapshot:
    """Return the difference of two snapshots of the same counters, without the zeros."""
    changes = {k: count - before.get(k, NOTHING) for k, count in after.items()}
    return {k: change for k, change in changes.items() if change != NOTHING}


def by_kind(snapshot: Snapshot) -> dict[str, RequestCount]:
    """Return the counts of a snapshot by kind, over all labels."""
    totals: dict[str, RequestCount] = {}
    for (kind, _), count in snapshot.items():
        totals[kind] = totals.get(kind, NOTHING) + count
    return totals


def by_label(snapshot: Snapshot) -> dict[str, RequestCount]:
    """Return the counts of a snapshot by label, over all kinds."""
    totals: dict[str, RequestCount] = {}
    for (_, label), count in snapshot.items():
        totals[label] = totals.get(label, NOTHING) + count
    return totals


COUNT_MAX: Final = 1 << 62
"""A larger number in a document is no count."""


def add_to(totals: dict[tuple[str, str], RequestCount], counts: Snapshot) -> None:
    """Add counts to totals."""
    for key, count in counts.items():
        totals[key] = totals.get(key, NOTHING) + count


def to_document(snapshot: Snapshot, labels_max: int) -> dict[str, dict[str, list[int]]]:
    """Return counts as JSON values: label to kind to [requests, bytes].

    The document has the `labels_max` labels with the most requests. The others count under ''.
    """
    totals = by_label(snapshot)
    named = set(sorted(totals, key=lambda label: (-totals[label].requests, label))[:labels_max])
    document: dict[str, dict[str, list[int]]] = {}
    for (kind, label), count in sorted(snapshot.items()):
        own = document.setdefault(label if label in named else "", {})
        known = RequestCount(*own.get(kind, (0, 0))) + count
        own[kind] = [known.requests, known.bytes]
    return document


def from_document(document: Mapping[str, Any]) -> Snapshot:
    """Return the counts of `to_document`, without values that are no counts."""
    return {
        (str(kind), str(label)): RequestCount(*count)
        for label, own in document.items()
        if isinstance(own, dict)
        for kind, count in own.items()
        if isinstance(count, list) and len(count) == 2 and all(map(_is_count, count))
    }


def _is_count(number: object) -> bool:
    return type(number) is int and 0 <= number <= COUNT_MAX


class RequestCounters:
    """Thread-safe counters of requests and bytes by kind and label, and of retries and failures.

    A forked child starts with its parent's counts.
    """

    def __init__(self) -> None:
        """Start at zero."""
        self._requests: Counter[tuple[str, str]] = Counter()
        self._bytes: Counter[tuple[str, str]] = Counter()
        self._retries: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self.concurrency_limit: Callable[[], int] | None = None
        """Returns how many requests the store gets at a time, if that is limited."""
        self._lock = PerProcess(Lock)

    def add(self, kind: str, label: str, size_bytes: int = 0, requests: int = 1) -> None:
        """Count requests of one kind."""
        with self._lock.get():
            self._requests[kind, label] += requests
            self._bytes[kind, label] += size_bytes

    def retried(self, kind: str) -> None:
        """Count a request that is sent again, because the store did not respond."""
        with self._lock.get():
            self._retries[kind] += 1

    def failed(self, kind: str) -> None:
        """Count a request that is not sent again, although the store did not respond."""
        with self._lock.get():
            self._failures[kind] += 1

    def retries(self) -> dict[str, int]:
        """Return the number of repeated requests, by kind."""
        with self._lock.get():
            return dict(self._retries)

    def failures(self) -> dict[str, int]:
        """Return the number of failed requests, by kind."""
        with self._lock.get():
            return dict(self._failures)

    def snapshot(self) -> Snapshot:
        """Return the current counts."""
        with self._lock.get():
            return {k: RequestCount(n, self._bytes[k]) for k, n in self._requests.items()}

    def by_kind(self) -> dict[str, RequestCount]:
        """Return the counts by kind, over all labels."""
        return by_kind(self.snapshot())

    def by_label(self) -> dict[str, RequestCount]:
        """Return the counts by label, over all kinds."""
        return by_label(self.snapshot())

    def reset(self) -> None:
        """Set all counters to zero."""
        with self._lock.get():
            for counts in (self._requests, self._bytes, self._retries, self._failures):
                counts.clear()


class Latencies:
    """The last few latencies of one kind of request, and their percentiles. Thread-safe."""

    def __init__(self, kept: int = 256) -> None:
        """Keep the last `kept` latencies."""
        self._recent: deque[float] = deque(maxlen=kept)
        self._lock = PerProcess(Lock)

    def add(self, seconds: float) -> None:
        """Record one request that took `seconds`."""
        with self._lock.get():
            self._recent.append(seconds)

    def __len__(self) -> int:
        """Return the number of kept latencies."""
        return len(self._recent)

    def percentile(self, share: float) -> float | None:
        """Return the seconds within which `share` (0 to 1) of the requests ended; None for none."""
        ordered = sorted(self.last())
        if not ordered:
            return None
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def last(self) -> list[float]:
        """Return the kept latencies, oldest first."""
        with self._lock.get():
            return list(self._recent)
