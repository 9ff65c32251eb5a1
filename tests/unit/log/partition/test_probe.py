"""Probing: seeing appends for one request, and never taking a stray object for one."""

from __future__ import annotations

import pytest

from sparklog.core.errors import DataCorrupt
from sparklog.log.partition.partition_log import PartitionLog
from sparklog.store.memory import MemoryStore
from sparklog.store.metered import MeteredStore
from tests.harness.log_records import LAYOUT, numbered, open_partition, values


@pytest.fixture
def store() -> MeteredStore:
    return MeteredStore(MemoryStore("test"), lambda key: "")


def requests(store: MeteredStore) -> dict[str, int]:
    return {kind: count.requests for kind, count in store.counters.by_kind().items()}


def appended(store: MeteredStore, counts: list[int]) -> PartitionLog:
    log = open_partition(store)
    for count in counts:
        log.append([numbered(0, count)])
    return log


def test_an_idle_probe_is_one_request(store: MeteredStore) -> None:
    appended(store, [3, 4])
    reader = open_partition(store)
    assert reader.view().end_offset == 7
    store.counters.reset()
    for _ in range(5):
        assert reader.probe().end_offset == 7
    assert requests(store) == {"get": 5}


def test_a_first_probe_sees_everything(store: MeteredStore) -> None:
    appended(store, [3, 4])
    assert open_partition(store).probe().end_offset == 7


@pytest.mark.parametrize("count", [1, 2, 7, 8, 30, 40])
def test_a_probe_sees_all_that_was_appended_since(store: MeteredStore, count: int) -> None:
    writer = appended(store, [3])
    reader = open_partition(store)
    reader.view()
    for at in range(count):
        writer.append([numbered(at, 2)])
    view = reader.probe()
    assert view.end_offset == 3 + 2 * count
    assert len(values(reader, 0, view.end_offset)) == view.end_offset


def test_an_append_costs_two_small_requests_and_a_listing_to_see(store: MeteredStore) -> None:
    writer = appended(store, [3])
    reader = open_partition(store)
    reader.view()
    writer.append([numbered(3, 2)])
    store.counters.reset()
    reader.probe()
    assert requests(store) == {"get": 2, "list": 1}


def test_probe_after_the_tail_was_absorbed_uses_the_manifest(store: MeteredStore) -> None:
    writer = appended(store, [3])
    reader = open_partition(store)
    reader.view()
    writer.append([numbered(3, 2)])
    writer.absorb_tail()
    writer.append([numbered(5, 1)])
    view = reader.probe()
    assert view.end_offset == 6
    assert view.manifest.end_offset == 5


def test_a_stray_object_under_a_name_that_became_free_is_not_believed(
    store: MeteredStore,
) -> None:
    """A slow writer creates the next name of a chain that has moved on and been cleaned up."""
    writer = appended(store, [3])
    reader = open_partition(store)
    assert reader.view().end_offset == 3
    writer.append([numbered(3, 2)])
    writer.append([numbered(5, 2)])
    old = store.get(LAYOUT.key(LAYOUT.chain_name(3)))
    writer.absorb_tail()
    writer.delete_records(5)
    store.delete(LAYOUT.key(LAYOUT.chain_name(3)))
    assert reader.probe().end_offset == 3, "the name is free: nothing to see"
    store.put_if_absent(LAYOUT.key(LAYOUT.chain_name(3)), old)
    view = reader.probe()
    assert (view.log_start_offset, view.end_offset) == (5, 7)


def test_damage_found_by_a_probe_is_reported_as_by_a_refresh(store: MeteredStore) -> None:
    appended(store, [3])
    reader = open_partition(store)
    reader.view()
    store.put_if_absent(LAYOUT.key(LAYOUT.chain_name(3)), b"foreign bytes")
    with pytest.raises(DataCorrupt, match="truncated or foreign"):
        reader.probe()
