"""Compaction and merging against a plain list, on random histories of a led partition.

Keys, tombstones, transactions that commit, abort or stay open, log starts inside segments, lags;
compactions and merges between them. The remaining records are those that Kafka's cleaner keeps,
offsets included. Answers to a consumer, a new leader or a stalled appender stay true.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import hypothesis.strategies as st
import pyarrow as pa
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sparklog.core.clock import ManualClock
from sparklog.core.config.topic import parse_topic_configs
from sparklog.log.cleanup.compaction_policy import CompactionPolicy
from sparklog.log.cleanup.compaction_shares import CompactionShare, CompactionShares, ShareOutcome
from sparklog.log.cleanup.compactor import Compactor
from sparklog.log.cleanup.rewriter import Encoding
from sparklog.log.effects import run
from sparklog.log.manifest.change import absorb_tail, change, raise_log_start
from sparklog.log.manifest.refresh import read_segment, refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.history_reader import HistoryCache, HistoryReader
from sparklog.log.partition.leader_append import flush_at, take_leadership
from sparklog.log.partition.partition_log import PartitionLog
from sparklog.log.partition.read_committed import decided
from sparklog.log.tail.producer_snapshot import load_producers
from sparklog.log.tail.to_segment import build_flush
from sparklog.protocol.records.columns import TIMESTAMP_TYPE
from sparklog.protocol.records.control import EndTransactionMarker, encode_end_transaction
from sparklog.protocol.records.header import parse_header
from sparklog.protocol.records.record_batch import BatchSettings, decode, encode
from sparklog.store.memory import MemoryStore
from tests.harness.log_records import LAYOUT

COLD = PartitionView(LAYOUT)
DELETE_RETENTION_MS = 10_000
LAG_MS = 1_000
RECORDS = st.lists(
    st.tuples(st.sampled_from([b"a", b"b", b"c", b"d", None]), st.none() | st.binary(max_size=6)),
    min_size=1,
    max_size=4,
)
PRODUCERS = st.integers(1, 3)


@dataclass
class Record:
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    producer: int | None
    """Of the transaction, while and after it is open; None for a plain record."""
    state: str = "committed"
    cleaned_ms: int | None = None


class Compaction(RuleBasedStateMachine):
    @initialize(lag=st.booleans(), codec=st.sampled_from(["none", "lz4"]), apart=st.booleans())
    def start(self, lag: bool, codec: str, apart: bool) -> None:
        self.clock = ManualClock()
        self.store = MemoryStore("compaction", self.clock)
        self.lag_ms = LAG_MS if lag else 0
        policy = CompactionPolicy.of(
            parse_topic_configs(
                {
                    "cleanup.policy": "compact",
                    "delete.retention.ms": str(DELETE_RETENTION_MS),
                    "min.compaction.lag.ms": str(self.lag_ms),
                    "min.cleanable.dirty.ratio": "0",
                }
            )
        )
        if apart:
            # Objects that lose nothing are left alone then, instead of joining their neighbours.
            policy = replace(policy, segment_bytes=1)
        self.pool = ThreadPoolExecutor(2)
        self.compactor = Compactor(
            self.store, LAYOUT, policy, Encoding(codec), self.pool, clock=self.clock
        )
        self.view = run(take_leadership(COLD, 1, "1" * 32), self.store)
        self.end = 0
        self.log_start = 0
        self.unflushed: list[bytes] = []
        self.records: list[Record] = []
        self.sequences: dict[int, int] = {}
        self.open: dict[int, int] = {}
        """Producer to the first offset of its open transaction, were that deleted by now."""
        self.ended: list[tuple[int, int]] = []
        """First offset and marker's of transactions that ended."""
        self.nonces = (f"{n:032x}" for n in range(1 << 20))
        self.appends: dict[int, str] = {}

    def teardown(self) -> None:
        if hasattr(self, "pool"):
            self.pool.shutdown()

    @rule(records=RECORDS)
    def append(self, records: list[tuple[bytes | None, bytes | None]]) -> None:
        self._append(records, None)

    @rule(records=RECORDS, producer=PRODUCERS)
    def append_in_transaction(
        self, records: list[tuple[bytes | None, bytes | None]], producer: int
    ) -> None:
        self._append(records, producer)

    @rule(producer=PRODUCERS, commit=st.booleans())
    def end_transaction(self, producer: int, commit: bool) -> None:
        first = self.open.pop(producer, None)
        if first is None:
            return
        self.ended.append((first, self.end))
        self.unflushed.append(
            encode_end_transaction(
                EndTransactionMarker(is_commit=commit, coordinator_epoch=1),
                base_offset=self.end,
                timestamp_ms=self.clock.now_ms(),
                producer_id=producer,
                producer_epoch=0,
                leader_epoch=1,
            )
        )
        self.end += 1
        for record in self.records:
            if record.producer == producer and record.state == "open":
                record.state = "committed" if commit else "aborted"

    @rule()
    def flush(self) -> None:
        if self.unflushed:
            nonce = next(self.nonces)
            draft = build_flush(LAYOUT, self.unflushed, nonce, codec="lz4")
            self.view = run(flush_at(self.view, draft, 1), self.store)
            for offset in range(draft.base_offset, draft.end_offset):
                self.appends[offset] = nonce
            assert self.view.end_offset == self.end
            self.unflushed = []

    @rule(milliseconds=st.sampled_from([1, LAG_MS, DELETE_RETENTION_MS]))
    def wait(self, milliseconds: int) -> None:
        self.clock.sleep_s(milliseconds / 1000)

    @rule(share=st.floats(0, 0.7))
    def delete_records(self, share: float) -> None:
        start = min(int(share * self.view.end_offset), self._stable(self.view.end_offset))
        start = max(self.log_start, start)
        self.view = run(change(self.view, raise_log_start(start), next(self.nonces)), self.store)
        self.log_start = self.view.log_start_offset
        self.records = [r for r in self.records if r.offset >= self.log_start]

    @rule()
    def absorb(self) -> None:
        self.view = run(change(self.view, absorb_tail(1, 0), next(self.nonces)), self.store)

    @rule()
    def merge(self) -> None:
        done = self.compactor.merge()
        assert done is None or not done.overtaken
        self.view = run(refresh(self.view), self.store)

    @rule(tasks=st.integers(0, 3))
    def compact(self, tasks: int) -> None:
        self.flush()
        now_ms = self.clock.now_ms()
        end = self._cleanable_end()
        before = run(refresh(COLD), self.store)
        producers = self._producers()
        done = self._compacted(tasks)
        self.view = run(refresh(self.view), self.store)
        if end <= max(before.manifest.cleaned_end, before.log_start_offset):
            assert done is None or self.view.manifest.cleaned_end == end
        else:
            assert done is not None
            assert not done.overtaken
            assert self.view.manifest.cleaned_end == end
            self._model_compaction(end, now_ms)
        assert self._producers() == producers

    def _compacted(self, tasks: int) -> ShareOutcome | None:
        """Compact in one go, or in `tasks` shares."""
        if not tasks:
            return self.compactor.compact(force=True)
        shares = self.compactor.compact_or_share(-1, force=True)
        if not isinstance(shares, CompactionShares):
            return shares
        done = [self.compactor.share(shares, number, tasks) for number in range(tasks)]
        parts = [CompactionShare.from_json(one.to_json()) for one in done if one is not None]
        assert len(parts) == tasks
        return self.compactor.publish(shares, parts)

    def _model_compaction(self, end: int, now_ms: int) -> None:
        part = [r for r in self.records if r.offset < end and r.state != "aborted"]
        assert all(r.state == "committed" for r in part)
        newest = {r.key: r for r in part if r.key is not None}
        kept = []
        for record in newest.values():
            since = record.cleaned_ms
            expired = since is not None and since <= now_ms - DELETE_RETENTION_MS
            if record.value is None and expired:
                continue
            if since is None:
                record.cleaned_ms = now_ms
            kept.append(record)
        kept.sort(key=lambda r: r.offset)
        self.records = kept + [r for r in self.records if r.offset >= end]

    def _cleanable_end(self) -> int:
        """Return where Kafka would stop: the first open transaction, or a segment too young."""
        limit = min(self.open.values(), default=1 << 60)
        end = 0
        for entry in self.view.entries:
            young = self.lag_ms and entry.max_timestamp_ms > self.clock.now_ms() - self.lag_ms
            if entry.end_offset > limit or young:
                break
            end = entry.end_offset
        return end

    def _append(
        self, records: list[tuple[bytes | None, bytes | None]], producer: int | None
    ) -> None:
        now_ms = self.clock.now_ms()
        rows = pa.RecordBatch.from_arrays(
            [
                pa.array([now_ms] * len(records), pa.int64()).view(TIMESTAMP_TYPE),
                pa.array([key for key, _ in records], pa.binary()),
                pa.array([value for _, value in records], pa.binary()),
            ],
            names=["timestamp", "key", "value"],
        )
        chosen = BatchSettings(leader_epoch=1)
        if producer is not None:
            sequence = self.sequences.get(producer, 0)
            self.sequences[producer] = sequence + len(records)
            self.open.setdefault(producer, self.end)
            chosen = BatchSettings(
                leader_epoch=1, producer_id=producer, producer_epoch=0,
                base_sequence=sequence, is_transactional=True,
            )  # fmt: skip
        self.unflushed.append(encode(rows, chosen, base_offset=self.end))
        state = "committed" if producer is None else "open"
        for key, value in records:
            self.records.append(Record(self.end, key, value, now_ms, producer, state))
            self.end += 1

    def _producers(self) -> dict[int, tuple[int, int | None]]:
        """Return what a new leader knows: sequences, and the oldest open transaction."""
        states = run(load_producers(run(refresh(COLD), self.store), 0), self.store)
        known: dict[int, tuple[int, int | None]] = {
            pid: (one.epoch, one.last_sequence) for pid, one in states
        }
        known[-1] = (0, dict(enumerate(p for p, _ in states.transactions.open())).get(0))
        return known

    @invariant()
    def readers_see_what_is_kept(self) -> None:
        if not hasattr(self, "view"):
            return
        end = self.view.end_offset
        expected = [
            (r.offset, r.key, r.value, r.timestamp_ms) for r in self.records if r.offset < end
        ]
        log = PartitionLog(self.store, LAYOUT, pool=self.pool)
        view = log.view()
        found: list[tuple[int, bytes | None, bytes | None, int]] = []
        for one in log.read(self.log_start, end, ("offset", "key", "value", "timestamp")):
            columns = [one.column(i).to_pylist() for i in range(3)]
            found += zip(*columns, one.column(3).cast("int64").to_pylist(), strict=True)
        assert found == expected
        assert self._committed(view) == [
            r.offset for r in self.records if r.offset < end and r.state == "committed"
            and r.offset < self._stable(end)
        ]  # fmt: skip

    def _stable(self, end: int) -> int:
        """Return the first offset of a transaction that has not ended below `end`."""
        open_ = [*self.open.values(), *(first for first, last in self.ended if last >= end)]
        return min((first for first in open_ if first < end), default=end)

    def _committed(self, view: PartitionView) -> list[int]:
        """Return the offsets that a consumer with read_committed is given, as Kafka's does it."""
        known = run(decided(view), self.store)
        reader = HistoryReader(LAYOUT, HistoryCache(1 << 20))
        offsets: list[int] = []
        at = view.log_start_offset
        while at < known.stable_end:
            history = run(reader.read(view, at, 1 << 20, known.stable_end), self.store)
            assert history.next_offset > at, "a consumer would wait for ever"
            for data in history.batches:
                header = parse_header(data)
                assert header.base_offset <= at, "offsets are covered without a hole"
                at = header.end_offset
                gone = header.is_transactional and any(
                    p == header.producer_id and first <= header.base_offset <= last
                    for p, first, last in known.aborted
                )
                if not header.is_control and not gone:
                    offsets += decode(data).records.column("offset").to_pylist()
        return [o for o in offsets if view.log_start_offset <= o < known.stable_end]

    @precondition(lambda self: hasattr(self, "appends") and self.appends)
    @rule(share=st.floats(0, 0.999))
    def a_stalled_appender_is_told_who_has_its_offset(self, share: float) -> None:
        offsets = sorted(o for o in self.appends if o >= self.log_start)
        if offsets:
            offset = offsets[int(share * len(offsets))]
            entry = self.view.covering(offset, offset + 1)[0]
            segment = run(read_segment(LAYOUT, entry.object), self.store)
            assert segment is not None
            told = entry.nonce if entry.nonce != "*" else segment[0].nonce_at(offset)
            assert told == self.appends[offset]


TestCompaction = Compaction.TestCase
TestCompaction.settings = settings(max_examples=15, stateful_step_count=25, deadline=None)


def test_commit_with_records_in_an_untouched_object_is_kept() -> None:
    state = Compaction()
    state.start(lag=False, codec="none", apart=True)
    state.append_in_transaction(producer=1, records=[(b"a", b"committed")])
    state.flush()
    state.end_transaction(producer=1, commit=True)
    state.append(records=[(b"b", b"old"), (b"b", b"new")])
    state.append_in_transaction(producer=1, records=[(b"c", b"aborted")])
    state.end_transaction(producer=1, commit=False)
    state.compact(tasks=0)
    state.readers_see_what_is_kept()
    assert [r.value for r in state.records] == [b"committed", b"new"]
    state.teardown()
