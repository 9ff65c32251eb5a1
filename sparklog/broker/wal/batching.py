"""Windows: decides the batches of one object of a write-ahead log and the time of its put. Pure.

Rule APPENDER-4 is decided here. Sizes are bytes, times seconds of the loop's clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from math import inf
from typing import Protocol

from sparklog.core.config.broker import BrokerConfig
from sparklog.core.types import PartitionId
from sparklog.log.wal.objects import WalBatch

CHEAP_PUT_S = 0.02
"""A store that takes a put in less is a disk or near one: puts follow each other without a pause.
Elsewhere each has its price, so they start `linger_s` apart, or with a full window."""
UNAWAITED_LINGERS = 3
"""Lingers of a window for which no acknowledgement waits, as with commits in memory. Its put costs
as much as any other, and no client gains by an early one."""
GATHERED_MAX_S = 0.01
"""The longest time between two starts of puts on such a store, while the window waits for a crowd.
A crowd is as many batches as were under way at once of late. A batch that comes alone never waits.
If many come, a put, and a fetch of each follower, serve several. A complete crowd does not wait for
the time to pass."""
RETURN_SHARE = 0.25
"""Part of a put's time for which the window also waits for producers that were just acknowledged:
as a rule they send as much again."""
PUTS_REMEMBERED = 32
"""The quickest of these puts shows what the store is. A disk that stalls behind a large flush, or a
busy machine, is still a disk: its puts must not be a linger apart. The most batches that were under
way at any of these puts show how many come at once."""


@dataclass(frozen=True, slots=True)
class WalLimits:
    """When a window is put."""

    linger_s: float = 0.1
    window_bytes: int = 8 * 1024 * 1024
    forced: bool = True
    """`wal.fsync`: True if a window is on the disk before it counts."""
    in_flight_max: int = 4
    """Puts under way before batches gather, even when more are due. Puts that wait for a disk at
    the same time share its work. On a distant store one put hides the time that others take."""

    @classmethod
    def of(cls, settings: BrokerConfig) -> WalLimits:
        """Return what a broker's settings say."""
        return cls(
            linger_s=settings.whole("wal.linger.ms") / 1000,
            window_bytes=settings.whole("wal.bytes"),
            forced=settings.flag("wal.fsync"),
        )


class DurableSink(Protocol):
    """A partition under one leader epoch, which appends to the log.

    `LeaderPartition` implements it. That class is in `broker/partition`, which imports this
    package.
    """

    where: PartitionId
    """The partition."""

    def wal_begun(self, end_offset: int) -> None:
        """Handle that all its batches below `end_offset` are being put, or wait for long."""
        ...

    def wal_durable(self, end_offset: int) -> None:
        """Handle that all its batches below `end_offset` are durable."""
        ...


@dataclass(slots=True)
class WalWindow:
    """Batches that go, or went, into one object."""

    sequence: int = 0
    since_s: float = 0.0
    """When its first batch came."""
    batches: list[WalBatch] = field(default_factory=list)
    count: int = 0
    """The number of batches it has, or had when it was put."""
    awaited: int = 0
    """The number of batches that an acknowledgement waits for."""
    size_bytes: int = 0
    ends: dict[DurableSink, int] = field(default_factory=dict)
    """The offset up to which each partition is durable once this window is acknowledged."""
    urgent: bool = False
    """True if it has the first batch after a take-over: its producer has waited long already."""
    unflushed: dict[PartitionId, int] = field(default_factory=dict)
    """The offset each partition's own log must reach before this window's name may be trimmed."""

    def takes(self, batch: WalBatch, limits: WalLimits) -> bool:
        """Return True if a batch may still be added; the first always may, of any size."""
        return not self.batches or self.size_bytes + len(batch.data) <= limits.window_bytes

    def add(
        self, batch: WalBatch, end_offset: int, sink: DurableSink, *, awaited: bool = True
    ) -> None:
        """Add a batch for which `sink` gets notices; `awaited`: an acknowledgement waits for it."""
        self.batches.append(batch)
        self.count += 1
        self.awaited += awaited
        self.size_bytes += len(batch.data)
        self.ends[sink] = end_offset
        self.unflushed[sink.where] = end_offset


class WalBatcher:
    """When a window is to be put, going by what the store and its users did before."""

    def __init__(self, limits: WalLimits) -> None:
        """Know nothing of the store yet."""
        self._limits = limits
        self._took_s: deque[float] = deque(maxlen=PUTS_REMEMBERED)
        self._quickest_s = 0.0
        self._crowds: deque[int] = deque(maxlen=PUTS_REMEMBERED)
        """The awaited batches under way when each put started, its own included."""
        self._crowd = 0
        """The largest of these."""
        self._under_way = 0
        self._put_s = -inf
        """When the last put started."""
        self._acknowledged_s = -inf
        """When batches were acknowledged last."""

    def put(self, window: WalWindow, now_s: float) -> None:
        """Record that a window's put starts."""
        self._under_way += window.awaited
        self._crowds.append(self._under_way)
        self._crowd = max(self._crowds)
        self._put_s = now_s

    def took(self, seconds: float) -> None:
        """Record the time that a put took."""
        self._took_s.append(seconds)
        self._quickest_s = min(self._took_s)

    def acknowledged(self, window: WalWindow, now_s: float) -> None:
        """Record that a window's batches were acknowledged."""
        self._under_way -= window.awaited
        self._acknowledged_s = now_s

    def due_s(self, window: WalWindow) -> float:
        """Return when a window is to be put; none is put before it."""
        if window.urgent or window.size_bytes >= self._limits.window_bytes:
            return -inf
        linger_s = self._limits.linger_s
        latest_s = window.since_s + linger_s
        if not window.awaited:
            return window.since_s + UNAWAITED_LINGERS * linger_s
        took_s = self._quickest_s
        if took_s > CHEAP_PUT_S:
            return min(latest_s, self._put_s + linger_s)
        if self._under_way + window.awaited >= self._crowd:
            return -inf  # no other producer is to come
        returned_s = self._acknowledged_s + RETURN_SHARE * took_s
        return min(latest_s, max(returned_s, self._put_s + GATHERED_MAX_S))
