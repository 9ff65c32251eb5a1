"""A root that is emptied under a process that knows its manifests."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.errors import DataCorrupt
from sparklog.log.effects import run
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest.change import absorb_tail, change
from sparklog.log.manifest.refresh import newer_manifest, refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.append import Candidate, append
from sparklog.log.schema import normalized
from sparklog.log.segment.builder import SegmentBuilder, build_records
from sparklog.store.memory import MemoryStore

LAYOUT = PartitionLayout("t", "A" * 22, 0)


def draft(number: int) -> SegmentBuilder:
    batch = normalized(pa.record_batch({"value": [b"v"]}), 1)
    return build_records(LAYOUT, [batch], f"{number:032x}", codec="none")


def grown(store: MemoryStore, changes: int) -> PartitionView:
    view = PartitionView(LAYOUT)
    for number in range(changes):
        view, _ = run(append(view, Candidate(draft(number))), store)
        view = run(change(view, absorb_tail(1, 0), f"{number:032x}"), store)
    return view


def test_append_and_refresh_name_the_manifest_that_is_gone() -> None:
    store = MemoryStore("lost", SYSTEM_CLOCK)
    view = grown(store, 2)
    for info in list(store.list("")):
        store.delete(info.key)
    for protocol in (append(view, Candidate(draft(9))), refresh(view)):
        with pytest.raises(DataCorrupt, match=LAYOUT.manifest_name(2)):
            run(protocol, store)


def test_old_view_moves_to_a_manifest_after_those_that_were_pruned() -> None:
    store = MemoryStore("pruned", SYSTEM_CLOCK)
    old = grown(store, 1)
    newest = run(refresh(old), store)
    for number in range(1, 40):
        newest, _ = run(append(newest, Candidate(draft(number))), store)
        newest = run(change(newest, absorb_tail(1, 0), f"{number:032x}"), store)
    assert LAYOUT.key(LAYOUT.manifest_name(1)) not in {info.key for info in store.list("")}
    view, moved = run(newer_manifest(old), store)
    assert (view.manifest.version, moved) == (40, True)
    assert run(newer_manifest(view), store) == (view, False)
