"""Harms objects (bytes flipped, cut off, deleted), and looks at and mends the log after it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from sparklog.core.clock import ManualClock
from sparklog.log.cleanup.rewriter import Encoding
from sparklog.log.repair.repair import Repair, Repairer, RepairResult
from sparklog.log.repair.verify import Findings, examine
from sparklog.store.memory import MemoryStore
from tests.harness.log_records import LAYOUT

PLAIN = Encoding("none")


def flipped(at: float) -> Callable[[MemoryStore, str], None]:
    def flip(store: MemoryStore, key: str) -> None:
        data = bytearray(store.get(key))
        data[int(at * (len(data) - 1))] ^= 0x10
        store.put(key, bytes(data))

    return flip


def cut(store: MemoryStore, key: str) -> None:
    data = store.get(key)
    store.put(key, data[: len(data) * 2 // 3])


def deleted(store: MemoryStore, key: str) -> None:
    store.delete(key)


HARM: dict[str, Callable[[MemoryStore, str], None]] = {
    **{f"a byte flipped at {at}": flipped(at) for at in (0, 0.02, 0.3, 0.6, 0.9)},
    "cut off": cut,
    "deleted": deleted,
}


def look(store: MemoryStore, clock: ManualClock, pool: ThreadPoolExecutor) -> Findings:
    return examine(store, LAYOUT, pool, deep=True, now_ms=clock.now_ms())


def mended(
    store: MemoryStore, found: Findings, clock: ManualClock, pool: ThreadPoolExecutor
) -> list[RepairResult]:
    return Repairer(Repair(store, found, pool, PLAIN, dry_run=False), clock.now_ms()).repair_all()
