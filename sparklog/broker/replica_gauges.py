"""What the metrics page shows of the partitions that a broker holds."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from sparklog.broker.fetching import Fetching
from sparklog.broker.flusher import Flusher
from sparklog.broker.led_partition import LedPartition
from sparklog.broker.memory_budget import MemoryBudget
from sparklog.broker.metrics import BrokerMetrics, Gauge
from sparklog.broker.producing import Producing
from sparklog.broker.recovering_partition import RecoveringPartition
from sparklog.broker.replica import Replica
from sparklog.broker.wal_pump import WalPump
from sparklog.core.types import PartitionId
from sparklog.log.history_cache import HistoryCache


def watch_gauges(
    metrics: BrokerMetrics,
    replicas: Mapping[PartitionId, Replica],
    *,
    budget: MemoryBudget,
    pump: WalPump,
    flusher: Flusher,
    producing: Producing,
    fetching: Fetching,
    cache: HistoryCache,
) -> None:
    """Have the page read these, whenever it is asked for."""

    def led() -> list[LedPartition]:
        return [one for replica in replicas.values() if (one := replica.led) is not None]

    def recovering_s() -> float:
        now_s = asyncio.get_running_loop().time()
        return max((now_s - one.started_s for one in _recovering(replicas)), default=0.0)

    watch = metrics.watch
    watch(Gauge.RECOVERING, lambda: len(_recovering(replicas)))
    watch(Gauge.RECOVERING_SECONDS, recovering_s)
    watch(Gauge.PARTITIONS, lambda: len(replicas))
    watch(Gauge.LEADERS, lambda: len(led()))
    watch(Gauge.UNDER_REPLICATED, lambda: sum(map(_lacks_replicas, replicas.values())))
    watch(Gauge.UNDER_MIN_ISR, lambda: sum(map(_is_under_min_isr, led())))
    watch(Gauge.OFFLINE_REPLICAS, lambda: sum(map(_is_damaged, replicas.values())))
    watch(Gauge.TAIL_BYTES, lambda: budget.used_bytes)
    watch(Gauge.TAIL_BYTES_LIMIT, lambda: budget.limit_bytes)
    watch(Gauge.WAL_OBJECTS, lambda: pump.objects)
    watch(Gauge.WAL_WAITING_SECONDS, lambda: pump.waiting_s)
    watch(Gauge.FLUSH_OVERDUE_SECONDS, lambda: flusher.overdue_s)
    watch(Gauge.TAIL_WAITING, lambda: budget.waiting)
    watch(Gauge.PRODUCE_WAITING, lambda: producing.waiting)
    watch(Gauge.FETCH_WAITING, lambda: fetching.waiting)
    watch(Gauge.HISTORY_CACHE_BYTES, lambda: cache.size_bytes)


def _recovering(replicas: Mapping[PartitionId, Replica]) -> list[RecoveringPartition]:
    """Return what this broker was elected to lead and does not serve yet."""
    roles = [replica.role for replica in replicas.values()]
    return [role for role in roles if isinstance(role, RecoveringPartition) and role.live]


def _lacks_replicas(replica: Replica) -> bool:
    return replica.led is not None and len(replica.state.isr) < len(replica.state.replicas)


def _is_damaged(replica: Replica) -> bool:
    """Tell whether this broker should lead a partition and cannot, as its log is damaged."""
    role = replica.role
    return isinstance(role, (LedPartition, RecoveringPartition)) and role.damage is not None


def _is_under_min_isr(led: LedPartition) -> bool:
    return len(led.leadership.isr) < led.leadership.min_isr
