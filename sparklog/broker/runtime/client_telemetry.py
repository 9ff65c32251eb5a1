"""Metrics that clients push to this broker: what each client said last. Source: KIP-714.

CLIENT-TELEMETRY-1: Memory is bounded: at most `CLIENTS_MAX` clients with `METRICS_MAX` numbers
    each, whose names `protocol.otlp` bounds: 2 MB in all. A further client takes the place of the
    one that has been silent for longest.
CLIENT-TELEMETRY-2: A client that pushes sooner than it was asked to is rejected, unless it ends or
    is new here.
CLIENT-TELEMETRY-3: A push forgets the clients that have been silent for `FORGOTTEN_AFTER`
    intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from sparklog.core.errors import InvalidRequest, SparklogError, Unavailable
from sparklog.protocol.otlp import ClientMetric, read_metrics

CLIENTS_MAX: Final = 100
METRICS_MAX: Final = 100
FORGOTTEN_AFTER: Final = 3
EARLY: Final = 0.5
"""The part of an interval after which a push is taken: clients vary their intervals."""
NO_COMPRESSION: Final = 0


class UnknownSubscription(InvalidRequest):
    """The client's subscription is not the present one: get it anew."""

    kafka_code = 117


class TelemetryTooLarge(InvalidRequest):
    """The metrics are larger than the subscription allows."""

    kafka_code = 118


class UnsupportedCompression(InvalidRequest):
    """Brokers take metrics uncompressed: their subscription says so."""

    kafka_code = 76


class TelemetryThrottled(Unavailable):
    """Pushed too soon: wait for the interval."""

    kafka_code = 89


@dataclass(frozen=True, slots=True)
class TelemetrySubscription:
    """The metrics that clients shall push, and when."""

    metrics: tuple[str, ...]
    """Prefixes of names; an empty one matches all, none at all asks for nothing."""
    interval_ms: int
    bytes_max: int

    @property
    def subscription_id(self) -> int:
        """Return a number that changes with the subscription, the same in every broker."""
        text = f"{self.interval_ms} {self.bytes_max} {' '.join(self.metrics)}"
        value = 0
        for byte in text.encode():
            value = (value * 31 + byte) & 0x7FFFFFFF
        return value


@dataclass(slots=True)
class PushingClient:
    """One client instance."""

    instance_id: UUID
    client_id: str
    host: str
    pushed_s: float
    metrics: Sequence[ClientMetric] = field(default_factory=tuple)


class ClientTelemetry:
    """The clients that push here. Not thread-safe: the event loop alone uses it."""

    def __init__(self) -> None:
        """Know no client yet."""
        self._clients: dict[UUID, PushingClient] = {}
        self.pushes = 0
        self.rejected = 0

    def push(
        self,
        subscription: TelemetrySubscription,
        client: PushingClient,
        data: bytes,
        *,
        subscription_id: int,
        compression_type: int,
        terminating: bool,
    ) -> None:
        """Keep the metrics of a client in place of its last ones.

        Args:
            subscription: the present one.
            client: the client, and the time of the push; its metrics are not read.
            data: an OpenTelemetry MetricsData message.
            subscription_id: that of the client.
            compression_type: of `data`, as in record batches.
            terminating: the client ends: its last push may come early.

        Raises:
            UnknownSubscription, TelemetryTooLarge, UnsupportedCompression, TelemetryThrottled,
                InvalidTelemetry: nothing is kept; see CLIENT-TELEMETRY-2.
        """
        try:
            self._check(subscription, client, data, subscription_id, compression_type, terminating)
            client.metrics = read_metrics(data)[:METRICS_MAX]
        except SparklogError:
            self.rejected += 1
            raise
        self.pushes += 1
        self._forget_silent(client.pushed_s, subscription.interval_ms)
        self._clients.pop(client.instance_id, None)
        self._clients[client.instance_id] = client
        if len(self._clients) > CLIENTS_MAX:
            del self._clients[next(iter(self._clients))]

    def clients(self) -> list[PushingClient]:
        """Return the clients that pushed lately, the most recent last."""
        return list(self._clients.values())

    def _forget_silent(self, now_s: float, interval_ms: int) -> None:
        """Forget the clients that have been silent for `FORGOTTEN_AFTER` intervals."""
        since_s = now_s - FORGOTTEN_AFTER * interval_ms / 1000
        self._clients = {k: c for k, c in self._clients.items() if c.pushed_s >= since_s}

    def _check(
        self,
        subscription: TelemetrySubscription,
        client: PushingClient,
        data: bytes,
        subscription_id: int,
        compression_type: int,
        terminating: bool,
    ) -> None:
        if subscription_id != subscription.subscription_id or not subscription.metrics:
            raise UnknownSubscription("the subscription has changed: get it anew")
        if compression_type != NO_COMPRESSION:
            raise UnsupportedCompression("metrics are taken uncompressed")
        if len(data) > subscription.bytes_max:
            raise TelemetryTooLarge(
                f"the metrics are too large. bytes={len(data)} limit={subscription.bytes_max}"
            )
        before = self._clients.get(client.instance_id)
        soon_s = subscription.interval_ms / 1000 * EARLY
        if before is not None and not terminating and client.pushed_s - before.pushed_s < soon_s:
            raise TelemetryThrottled(f"wait for the interval. ms={subscription.interval_ms}")
