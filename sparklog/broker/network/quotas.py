"""Client quotas: charges what a client sent, read or changed, and returns its throttle time.

A quota is that of the client's user, its client id, or both (`core.quotas`). The user is the
principal of the connection, `ANONYMOUS` without a login. The answer goes out at once and names that
time; then the connection is not read for as long (`connection`), as in Kafka since KIP-219. A quota
holds for each broker by itself. A quota of bytes never rejects: the broker appends all bytes that
came in and sends all that it read, however many.

The quota of changes does reject. Clients of older versions do not know the error; the broker makes
their changes and throttles them afterwards. Source: KIP-599.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from datetime import timedelta
from math import ceil, inf
from typing import Final

from sparklog.broker.network.request_time import RequestTime
from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.broker.runtime.request import UNTHROTTLED, RequestContext
from sparklog.core.config.broker import BrokerConfig
from sparklog.core.errors import Unavailable
from sparklog.core.quotas import (
    CONTROLLER_MUTATION_RATE,
    REQUEST_PERCENTAGE,
    Quotas,
    TokenBucket,
    limit_of,
)

WAIT_MAX_MS: Final = 2**31 - 1
"""The most that an answer's field holds. A client that waited for so long and still owes gets a
further throttle time."""
MS_PER_S: Final = 1000
ROUNDING_S: Final = 1e-6
"""A wait below this is an error of rounding: the client has waited as long as it was asked to."""
BUCKETS_KEPT: Final = 1000
"""With more buckets than this, those of clients that spent nothing for a while are dropped. Such
clients are as new ones."""


CLIENTS_KEPT: Final = 4000
"""The most clients whose buckets are found by one look-up."""


class ThrottlingQuotaExceeded(Unavailable):
    """The client is over its quota of changes: try again after the throttle time."""

    kafka_code = 89


class ControllerMutationQuota:
    """The quota of one request that creates or deletes partitions.

    A bucket that is overdrawn accepts nothing; one that is not accepts any number of partitions.
    """

    def __init__(self, bucket: TokenBucket | None, metrics: BrokerMetrics, *, strict: bool) -> None:
        """Begin with nothing accepted. Without a bucket there is no limit.

        Args:
            bucket: the client's.
            metrics: counts a throttled request.
            strict: reject what is over the quota. Else accept it, and throttle the client.
        """
        self._bucket = bucket
        self._metrics = metrics
        self._strict = strict
        self._accepted: dict[Hashable, bool] = {}
        self._until_s = 0.0
        """The time when the client may go on, by the loop's clock."""

    def accept(self, change: Hashable, partitions: int) -> None:
        """Charge the partitions of a change, once however often the change is decided.

        Args:
            change: identifies the change within the request.
            partitions: how many it creates or deletes.

        Raises:
            ThrottlingQuotaExceeded: the quota was used up before this change.
        """
        if self._bucket is None:
            return
        accepted = self._accepted.get(change)
        if accepted is None:
            accepted = self._accepted[change] = self._charge(self._bucket, partitions)
        if not accepted:
            raise ThrottlingQuotaExceeded("The throttling quota has been exceeded.")

    def _charge(self, bucket: TokenBucket, partitions: int) -> bool:
        now_s = asyncio.get_running_loop().time()
        owed_s = bucket.wait_s(now_s) if self._strict else bucket.spend(partitions, now_s)
        if owed_s > ROUNDING_S:
            self._until_s = now_s + owed_s
            return not self._strict
        if self._strict:
            bucket.spend(partitions, now_s)
        return True

    def throttle_time(self) -> timedelta:
        """Return the time for which the client waits, and count it."""
        wait_s = self._until_s - asyncio.get_running_loop().time()
        if wait_s <= 0.0:
            return UNTHROTTLED
        self._metrics.throttled(CONTROLLER_MUTATION_RATE, wait_s)
        return _throttle_of(wait_s)


def _throttle_of(wait_s: float) -> timedelta:
    """Return a throttle time in whole milliseconds, at least as long as the wait."""
    return timedelta(milliseconds=min(ceil(wait_s * MS_PER_S), WAIT_MAX_MS))


class ClientQuotas:
    """One broker's. The event loop's only."""

    def __init__(self, config: BrokerConfig, metrics: BrokerMetrics) -> None:
        """Begin without a bucket: no client has spent anything yet."""
        samples = config.whole("quota.window.num") - 1
        self._window_s = float(config.whole("quota.window.size.seconds"))
        self._burst_s = max(1, samples) * self._window_s
        windows = config.whole("controller.quota.window.num")
        self._mutation_burst_s = float(
            windows * config.whole("controller.quota.window.size.seconds")
        )
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
        return _throttle_of(wait_s)

    def mutations(
        self, quotas: Quotas, client: RequestContext, *, strict: bool
    ) -> ControllerMutationQuota:
        """Return the quota for a client's request that creates or deletes partitions."""
        bucket = self._bucket_of(quotas, CONTROLLER_MUTATION_RATE, client) if quotas else None
        return ControllerMutationQuota(bucket, self._metrics, strict=strict)

    def request_time(self, quotas: Quotas, client: RequestContext) -> RequestTime | None:
        """Return the request time of a client, None if no quota limits that."""
        bucket = self._bucket_of(quotas, REQUEST_PERCENTAGE, client)
        return None if bucket is None else RequestTime(bucket, self._window_s, self._metrics)

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
        if bucket is None or bucket.per_s != limit.per_s:
            now_s = asyncio.get_running_loop().time()
            if len(self._buckets) >= self._buckets_max:
                self._forget_idle(now_s)
            burst_s = self._mutation_burst_s if key == CONTROLLER_MUTATION_RATE else self._burst_s
            debt_max_s = burst_s if key == REQUEST_PERCENTAGE else inf
            bucket = TokenBucket(limit.per_s, burst_s, now_s, debt_max_s)
            self._buckets[name] = bucket
        return bucket

    def _forget_idle(self, now_s: float) -> None:
        self._buckets = {k: b for k, b in self._buckets.items() if not b.is_full(now_s)}
        self._buckets_max = max(BUCKETS_KEPT, 2 * len(self._buckets))
        self._known.clear()
