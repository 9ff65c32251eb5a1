"""Holds clients to their quotas: charges the bytes one sent or read, and returns its throttle time.

A quota is that of the client's user, its client id, or both (`core.quotas`). The user is the
principal of the connection, `ANONYMOUS` without a login. The answer goes out at once and names that
time; then the connection is not read for as long (`connection`), as in Kafka since KIP-219. A quota
holds for each broker by itself. A quota never rejects: the broker appends all bytes that came in
and sends all that it read, however many.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Final

from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.broker.runtime.request import UNTHROTTLED, RequestContext
from sparklog.core.config.broker import BrokerConfig
from sparklog.core.quotas import Quotas, TokenBucket, limit_of

WAIT_MAX_MS: Final = 2**31 - 1
"""The most that an answer's field holds. A client that waited for so long and still owes gets a
further throttle time."""
BUCKETS_KEPT: Final = 1000
"""With more buckets than this, those of clients that spent nothing for a while are dropped. Such
clients are as new ones."""


CLIENTS_KEPT: Final = 4000
"""The most clients whose buckets are found by one look-up."""


class ClientQuotas:
    """One broker's. The event loop's only."""

    def __init__(self, config: BrokerConfig, metrics: BrokerMetrics) -> None:
        """Begin without a bucket: no client has spent anything yet."""
        samples = config.whole("quota.window.num") - 1
        self._burst_s = float(max(1, samples) * config.whole("quota.window.size.seconds"))
        self._metrics = metrics
        self._buckets: dict[tuple[str, str | None, str | None], TokenBucket] = {}
        self._buckets_max = BUCKETS_KEPT
        self._quotas: Quotas = {}
        """Those that `_known` was found in; an image with other quotas has another mapping."""
        self._known: dict[tuple[str, str, str | None], TokenBucket | None] = {}
        """Buckets by quota, user and client id; None where no quota applies."""

    def charge(
        self, quotas: Quotas, key: str, client: RequestContext, size_bytes: int
    ) -> timedelta:
        """Charge a client for bytes, and return how long the broker does not read from it.

        Args:
            quotas: all there are, from the metadata image.
            key: which one of the client's; see `QUOTA_KEYS`.
            client: has the user and the client id.
            size_bytes: of batches that it sent, or that it is sent.
        """
        bucket = self._bucket_of(quotas, key, client) if quotas else None
        if bucket is None:
            return UNTHROTTLED
        wait_s = bucket.spend(size_bytes, asyncio.get_running_loop().time())
        if wait_s == 0.0:
            return UNTHROTTLED
        self._metrics.throttled(key, wait_s)
        return timedelta(milliseconds=min(max(1, round(wait_s * 1000)), WAIT_MAX_MS))

    def most_at_once(self, quotas: Quotas, key: str, client: RequestContext) -> int | None:
        """Return how many bytes a client may have at once, None if there is no bound."""
        bucket = self._bucket_of(quotas, key, client) if quotas else None
        return None if bucket is None else max(1, int(bucket.per_s * self._burst_s))

    def _bucket_of(self, quotas: Quotas, key: str, client: RequestContext) -> TokenBucket | None:
        if quotas is not self._quotas:
            self._quotas, self._known = quotas, {}
        name = key, client.principal.name, client.client_id
        if name in self._known:
            return self._known[name]
        if len(self._known) >= CLIENTS_KEPT:
            self._known.clear()
        bucket = self._known[name] = self._found(quotas, *name)
        return bucket

    def _found(
        self, quotas: Quotas, key: str, user: str, client_id: str | None
    ) -> TokenBucket | None:
        limit = limit_of(quotas, key, user, client_id or "")
        if limit is None:
            return None
        name = (key, *limit.shared_by)
        bucket = self._buckets.get(name)
        if bucket is None or bucket.per_s != limit.bytes_per_s:
            now_s = asyncio.get_running_loop().time()
            if len(self._buckets) >= self._buckets_max:
                self._forget_idle(now_s)
            bucket = self._buckets[name] = TokenBucket(limit.bytes_per_s, self._burst_s, now_s)
        return bucket

    def _forget_idle(self, now_s: float) -> None:
        self._buckets = {k: b for k, b in self._buckets.items() if not b.is_full(now_s)}
        self._buckets_max = max(BUCKETS_KEPT, 2 * len(self._buckets))
        self._known.clear()
