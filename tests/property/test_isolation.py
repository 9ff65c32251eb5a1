"""Reading committed records only, against a list of what each transaction became."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.client.batch_fetcher import FetchedBatches, kept
from sparklog.log.effects import run
from sparklog.log.manifest.change import absorb_tail, change
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.leader_append import flush_at, take_leadership
from sparklog.log.tail.producer_rebuild import rebuilt, snapshot
from sparklog.log.tail.producer_snapshot import save_producers
from sparklog.log.tail.to_segment import build_flush
from sparklog.protocol.records.control import EndTransactionMarker, encode_end_transaction
from sparklog.protocol.records.memory_records import split_batches
from sparklog.protocol.records.record_batch import BatchSettings, encode
from tests.harness.source_logs import batch_reader, new_log, rows_of

PRODUCERS = (7, 8, 9)
EPOCH = 1
FIRST = 0


@dataclass
class Event:
    """A batch of one producer, or the end of its transaction."""

    producer: int
    count: int
    """Records; 0 for a marker."""
    transactional: bool
    is_commit: bool = False


EVENTS = st.lists(
    st.builds(
        Event,
        st.sampled_from(PRODUCERS),
        st.integers(0, 3),
        st.booleans(),
        st.booleans(),
    ),
    min_size=1,
    max_size=24,
)


class History:
    """The batches of a partition, and which offsets a reader of committed records may see."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.batches: list[bytes] = []
        self.aborted: list[tuple[int, int, int]] = []
        self._open: dict[int, list[int]] = {}
        self._dropped: set[int] = set()
        self._records: list[int] = []
        self._sequence = dict.fromkeys(PRODUCERS, 0)
        self.end = FIRST
        for event in events:
            self._marker(event) if event.count == 0 else self._write(event)

    @property
    def stable_end(self) -> int:
        return min((offsets[0] for offsets in self._open.values()), default=self.end)

    def committed(self) -> list[int]:
        return [o for o in self._records if o < self.stable_end and o not in self._dropped]

    def _write(self, event: Event) -> None:
        in_transaction = event.transactional or event.producer in self._open
        values = pa.array([b"x"] * event.count)
        settings_of = BatchSettings(
            leader_epoch=EPOCH,
            producer_id=event.producer,
            producer_epoch=0,
            base_sequence=self._sequence[event.producer],
            is_transactional=in_transaction,
        )
        self.batches.append(
            encode(pa.record_batch({"value": values}), settings_of, base_offset=self.end)
        )
        offsets = list(range(self.end, self.end + event.count))
        self._sequence[event.producer] += event.count
        self._records += offsets
        self.end += event.count
        if in_transaction:
            self._open.setdefault(event.producer, []).extend(offsets)

    def _marker(self, event: Event) -> None:
        self.batches.append(
            encode_end_transaction(
                EndTransactionMarker(is_commit=event.is_commit, coordinator_epoch=0),
                base_offset=self.end,
                timestamp_ms=1,
                producer_id=event.producer,
                producer_epoch=0,
                leader_epoch=EPOCH,
            )
        )
        offsets = self._open.pop(event.producer, [])
        if not event.is_commit:
            self._dropped.update(offsets)
            if offsets:
                self.aborted.append((event.producer, offsets[0], self.end))
        self.end += 1


@settings(max_examples=60)
@given(events=EVENTS, data=st.data())
def test_segments_show_committed_records(events: list[Event], data: st.DataObject) -> None:
    history = History(events)
    log = new_log()
    log.create_topic("t")
    layout = log.partition("t", 0).layout
    view = run(take_leadership(PartitionView(layout), EPOCH, "a" * 32), log.store)
    left = list(history.batches)
    while left:
        count = data.draw(st.integers(1, len(left)))
        draft = build_flush(layout, left[:count], "b" * 32, codec="none")
        view = run(flush_at(view, draft, EPOCH), log.store)
        left = left[draft.batches :]
        if data.draw(st.booleans()):
            known = history.batches[: len(history.batches) - len(left)]
            run(save_producers(layout, view.end_offset, snapshot(rebuilt([], known, 0))), log.store)
        if data.draw(st.booleans()):
            view = run(change(view, absorb_tail(1, 0), "c" * 32), log.store)
    options = {"includeUnflushed": "false", "isolationLevel": "read_committed", "subscribe": "t"}
    columns = data.draw(st.sampled_from([("offset",), ("value", "offset")]))
    rows = rows_of(log, columns, maxRecordsPerPartition="5", **options)
    assert [row[-1] for row in rows] == history.committed()
    reader = batch_reader(log, (), **options)
    counted = sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part))
    assert counted == len(rows)
    everything = rows_of(log, ("offset",), includeUnflushed="false", subscribe="t")
    assert len(everything) == sum(event.count for event in events)


@given(events=EVENTS, data=st.data())
def test_fetches_show_committed_records(events: list[Event], data: st.DataObject) -> None:
    history = History(events)
    stable = [
        batch
        for batch in split_batches(b"".join(history.batches))
        if batch.header.base_offset < history.stable_end
    ]
    seen: list[int] = []
    while stable:
        count = data.draw(st.integers(1, len(stable)))
        some, stable = stable[:count], stable[count:]
        base, end = some[0].header.base_offset, some[-1].header.end_offset
        aborted = tuple((p, f) for p, f, last in history.aborted if last >= base and f < end)
        for batch in kept(FetchedBatches(some, aborted), committed_only=True):
            seen += range(batch.header.base_offset, batch.header.end_offset)
    assert seen == history.committed()
