"""Counting: how many requests of which kind were made, for whom, and how many bytes they moved.

Requests are the bill of an object store, so every store counts its own. Kinds are `get`, `put`,
`list` (one per page), `delete` and `head`; a label is a topic name, or '' for none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock


@dataclass(frozen=True, slots=True)
class RequestCount:
    """Requests made and bytes moved."""

    requests: int
    bytes: int


Snapshot = Mapping[tuple[str, str], RequestCount]
"""(kind, label) to count."""


class RequestCounters:
    """Thread-safe counters of requests and bytes by kind and label."""

    def __init__(self) -> None:
        """Start at zero."""
        self._requests: Counter[tuple[str, str]] = Counter()
        self._bytes: Counter[tuple[str, str]] = Counter()
        self._lock = Lock()

    def add(self, kind: str, label: str, size_bytes: int = 0, requests: int = 1) -> None:
        """Count requests of one kind."""
        with self._lock:
            self._requests[kind, label] += requests
            self._bytes[kind, label] += size_bytes

    def snapshot(self) -> Snapshot:
        """Return the counts as they are now."""
        with self._lock:
            return {k: RequestCount(n, self._bytes[k]) for k, n in self._requests.items()}

    def by_kind(self) -> dict[str, RequestCount]:
        """Return the counts by kind, over all labels."""
        totals: dict[str, RequestCount] = {}
        for (kind, _), count in self.snapshot().items():
            sofar = totals.get(kind, RequestCount(0, 0))
            totals[kind] = RequestCount(
                sofar.requests + count.requests, sofar.bytes + count.bytes
            )
        return totals

    def reset(self) -> None:
        """Start at zero again."""
        with self._lock:
            self._requests.clear()
            self._bytes.clear()
