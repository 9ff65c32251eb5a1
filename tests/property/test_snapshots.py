"""Snapshots: each gives the records of its time, after any later change of the log."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sparklog.cluster.log import Log
from sparklog.cluster.named_snapshots import (
    SnapshotReader,
    create_snapshot,
    drop_snapshot,
    read_snapshot,
    snapshot_records,
)
from sparklog.core.clock import ManualClock
from sparklog.core.config.topic import parse_topic_configs
from sparklog.core.types import PartitionId
from sparklog.log.cleanup.compaction_policy import CompactionPolicy
from sparklog.log.cleanup.compactor import Compactor
from sparklog.log.cleanup.garbage import GarbageRules, find_garbage, list_folder
from sparklog.log.cleanup.rewriter import Encoding
from sparklog.log.effects import run
from sparklog.log.manifest.refresh import refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.store.memory import MemoryStore
from tests.harness.log_records import batch

CONFIGS = {
    "cleanup.policy": "compact,delete",
    "delete.retention.ms": "0",
    "segment.bytes": "1048576",
}
Rows = list[tuple[int, bytes, bytes | None]]
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.tuples(st.integers(0, 3), st.booleans()),
                                              min_size=1, max_size=4)),
        st.tuples(st.just("stage"), st.integers(0, 3)),
        st.tuples(st.just("absorb"), st.none()),
        st.tuples(st.just("compact"), st.none()),
        st.tuples(st.just("merge"), st.none()),
        st.tuples(st.just("delete"), st.sampled_from([0.3, 0.7, 1.0])),
        st.tuples(st.just("snapshot"), st.none()),
        st.tuples(st.just("drop"), st.integers(0, 5)),
        st.tuples(st.just("delete topic"), st.none()),
    ),
    max_size=25,
)  # fmt: skip


class History:
    """One partition, and what its snapshots shall have."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self.clock = ManualClock()
        self.pool = pool
        self.log = Log(MemoryStore("history", self.clock), clock=self.clock)
        self.kept: dict[str, Rows] = {}
        self.appended = 0
        self._create()

    def _create(self) -> None:
        self.log.create_topic("t", 1, CONFIGS)
        self.partition = self.log.partition("t", 0)

    def act(self, what: str, how: Any) -> None:
        self.clock.sleep_s(1)
        match what:
            case "append":
                self.partition.append([self._records(how)])
            case "stage":
                staged = self.partition.stage([self._records([(how, True)])])
                self.partition.append_staged([staged])
            case "absorb":
                self.partition.absorb_tail()
            case "compact" | "merge":
                self._rewrite(what)
            case "delete":
                view = self.partition.view()
                span = view.end_offset - view.log_start_offset
                self.partition.delete_records(view.log_start_offset + int(how * span))
            case "snapshot":
                name = f"s{len(self.kept)}-{self.appended}-{self.clock.now_ms()}"
                view = self.partition.view()
                self.kept[name] = rows(
                    self.partition.read(view.log_start_offset, view.end_offset, view=view)
                )
                create_snapshot(self.log, name, ["t"], clock=self.clock)
            case "drop" if self.kept:
                name = sorted(self.kept)[how % len(self.kept)]
                drop_snapshot(self.log.store, name)
                del self.kept[name]
            case "delete topic":
                self.log.delete_topic("t")
                self._create()

    def check(self) -> None:
        for name, expected in self.kept.items():
            snapshot = read_snapshot(self.log.store, name)
            reader = SnapshotReader(self.log.store, snapshot, self.pool)
            assert rows(reader.read("t", 0)) == expected

    def _records(self, pairs: list[tuple[int, bool]]) -> Any:
        self.appended += len(pairs)
        return batch(
            [b"%d" % self.appended if full else None for _, full in pairs],
            keys=[b"k%d" % key for key, _ in pairs],
            timestamps_ms=[self.clock.now_ms()] * len(pairs),
        )

    def _rewrite(self, what: str) -> None:
        policy = CompactionPolicy.of(parse_topic_configs(CONFIGS))
        work = Compactor(
            self.log.store, self.partition.layout, policy, Encoding("lz4"), self.pool,
            clock=self.clock,
        )  # fmt: skip
        if what == "compact":
            work.compact(force=True)
        else:
            work.merge()

    def collect(self) -> None:
        """Delete what nothing needs, with no patience for anybody."""
        layout = self.partition.layout
        pins = run(snapshot_records(), self.log.store).pins()
        assert pins is not None
        listed = run(list_folder(layout), self.log.store)
        view = run(refresh(PartitionView(layout)), self.log.store)
        mine = pins.get(PartitionId(layout.topic_id, 0), frozenset())
        rules = GarbageRules(self.clock.now_ms(), 0, 0, snapshots=mine)
        for info in run(find_garbage(view, listed, rules), self.log.store).doomed:
            self.log.store.delete(info.key)


def rows(batches: Any) -> Rows:
    return [
        row
        for one in batches
        for row in zip(
            *(one.column(n).to_pylist() for n in ("offset", "key", "value")), strict=True
        )
    ]


@given(ACTS)
def test_snapshot_gives_the_records_of_its_time(acts: list[tuple[str, Any]]) -> None:
    with ThreadPoolExecutor(2) as pool:
        history = History(pool)
        for what, how in [("append", [(1, True), (2, True)]), ("snapshot", None), *acts]:
            history.act(what, how)
            history.collect()
            history.check()
