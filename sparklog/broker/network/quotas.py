"""Holds clients to their quotas: charges the bytes one sent or read, and returns its throttle time.

The answer goes out at once and names that time; then the connection is not read for as long
(`connection`), as in Kafka since KIP-219. A quota holds for each broker by itself. A quota never
rejects: the broker appends all bytes that came in and sends all that it read, however many.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Final

from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.broker.runtime.request import UNTHROTTLED
from sparklog.core.config.broker import BrokerConfig
from sparklog.core.quotas import Limit, Quotas, TokenBucket, limit_of
from sparklog.security.principal import ANONYMOUS

WAIT_MAX_MS: Final = 2**31 - 1
"""The most that an answer's field holds. A client that waited for so long and still owes gets a
further throttle time."""
BUCKETS_KEPT: Final = 1000
"""With more buckets than this, those of clients that spent nothing for a while are dropped. Such
clients are as new ones."""


class ClientQuotas:
    """One broker's. The event loop's only."""

    def __init__(self, config: BrokerConfig, metrics: BrokerMetrics) -> None:
        """Begin without a bucket: no client has spent anything yet."""
        samples = config.whole("quota.window.num") - 1
        self._burst_s = float(max(1, samples) * config.whole("quota.window.size.seconds"))
        self._metrics = metrics
        self._buckets: dict[tuple[str, str | None, str | None], TokenBucket] = {}
        self._buckets_max = BUCKETS_KEPT

    def charge(self, quotas: Quotas, key: str, client_id: str | None, size_bytes: int) -> timedelta:
        """Charge a client for bytes, and return how long the broker does not read from it.

        Args:
            quotas: all there are.
            key: which one of the client's; see `QUOTA_KEYS`.
            client_id: who the client says it is.
            size_bytes: of batches that it sent, or that it is sent.
        """
        if not quotas:
            return UNTHROTTLED
        limit = limit_of(quotas, key, ANONYMOUS.name, client_id or "")
        if limit is None:
            return UNTHROTTLED
        now_s = asyncio.get_running_loop().time()
        wait_s = self._bucket(key, limit, now_s).spend(size_bytes, now_s)
        if wait_s == 0.0:
            return UNTHROTTLED
        self._metrics.throttled(key, wait_s)
        return timedelta(milliseconds=min(max(1, round(wait_s * 1000)), WAIT_MAX_MS))

    def most_at_once(self, quotas: Quotas, key: str, client_id: str | None) -> int | None:
        """Return how many bytes a client may have at once, None if there is no bound."""
        limit = limit_of(quotas, key, ANONYMOUS.name, client_id or "") if quotas else None
        return None if limit is None else max(1, int(limit.bytes_per_s * self._burst_s))

    def _bucket(self, key: str, limit: Limit, now_s: float) -> TokenBucket:
        name = (key, *limit.shared_by)
        bucket = self._buckets.get(name)
        if bucket is None or bucket.per_s != limit.bytes_per_s:
            if len(self._buckets) >= self._buckets_max:
                self._forget_idle(now_s)
            bucket = self._buckets[name] = TokenBucket(limit.bytes_per_s, self._burst_s, now_s)
        return bucket

    def _forget_idle(self, now_s: float) -> None:
        self._buckets = {k: b for k, b in self._buckets.items() if not b.is_full(now_s)}
        self._buckets_max = max(BUCKETS_KEPT, 2 * len(self._buckets))
