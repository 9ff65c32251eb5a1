"""Every store in front of another passes on what that one knows better."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sparklog.core.clock import ManualClock
from sparklog.core.counters import RequestCount, RequestCounters
from sparklog.core.entropy import SeededEntropy
from sparklog.core.errors import Unavailable
from sparklog.store.background_io import IoThrottle, ThrottledStore
from sparklog.store.base import ObjectStore, TransientStoreError
from sparklog.store.delegating_store import DelegatingStore
from sparklog.store.file import FileStore
from sparklog.store.hedging import HedgingStore
from sparklog.store.memory import MemoryStore
from sparklog.store.metered import MeteredStore
from sparklog.store.probe import ProbingStore
from sparklog.store.retrying import RetryingStore
from sparklog.store.settings import StoreSettings
from sparklog.testing.faulty_store import FaultyStore, InjectedFault, Rule

CLOCK = ManualClock()
ENTROPY = SeededEntropy(1)
SETTINGS = StoreSettings()


class Folder(MemoryStore):
    """A store that knows better than to delete what is retired."""

    def __init__(self) -> None:
        super().__init__("folder")
        self.asked: list[str] = []

    def delete(self, key: str) -> None:
        raise AssertionError("deleted")

    def retire(self, key: str) -> None:
        self.asked.append(f"retire {key}")

    def tidy(self, prefix: str) -> None:
        self.asked.append(f"tidy {prefix}")


def retrying(store: ObjectStore) -> RetryingStore:
    return RetryingStore(store, RequestCounters(), SETTINGS, clock=CLOCK, entropy=ENTROPY)


FRONTS: list[Callable[[ObjectStore], ObjectStore]] = [
    lambda store: MeteredStore(store, lambda key: ""),
    lambda store: FaultyStore(store, (), clock=CLOCK, entropy=ENTROPY),
    lambda store: HedgingStore(store, SETTINGS, CLOCK),
    lambda store: ProbingStore(store, "folder"),
    lambda store: ThrottledStore(store, IoThrottle(1e6, CLOCK).passed),
    DelegatingStore,
    retrying,
]
NAMES = ["counting", "faulty", "hedging", "probing", "throttled", "delegating", "retrying"]


@pytest.mark.parametrize("front", FRONTS, ids=NAMES)
def test_retiring_and_tidying_are_passed_on(front: Callable[[ObjectStore], ObjectStore]) -> None:
    folder = Folder()
    store = front(folder)
    store.retire("log/0")
    store.tidy("log")
    assert folder.asked == ["retire log/0", "tidy log"]


def test_retiring_counts_as_a_delete_under_its_label() -> None:
    store = MeteredStore(Folder(), lambda key: key.partition("/")[0])
    store.retire("log/0")
    store.tidy("log/")
    assert store.counters.by_kind() == {"delete": RequestCount(1, 0)}


def test_retire_is_retried_after_transient_errors_as_a_delete() -> None:
    folder = Folder()
    rule = Rule(InjectedFault.BUSY, frozenset({"delete"}), times_max=2)
    faulty = FaultyStore(folder, [rule], clock=CLOCK, entropy=ENTROPY)
    with pytest.raises(TransientStoreError):
        faulty.retire("log/0")
    retrying(faulty).retire("log/1")
    assert folder.asked == ["retire log/1"]
    assert [(one.operation, one.key) for one in faulty.injected] == [
        ("delete", "log/0"),
        ("delete", "log/1"),
    ]


def test_a_store_that_knows_no_better_deletes() -> None:
    store = MemoryStore("plain")
    store.put_if_absent("log/0", b"")
    store.retire("log/0")
    store.tidy("log")
    assert list(store.list("")) == []


def test_tidying_is_not_tried_again() -> None:
    class Away(MemoryStore):
        def tidy(self, prefix: str) -> None:
            raise Unavailable("away")

    with pytest.raises(Unavailable):
        retrying(Away("away")).tidy("log")


def test_unforced_store_is_counted_and_retried_like_the_forced_one(
    tmp_path: Path,
) -> None:
    counting = MeteredStore(FileStore(tmp_path), lambda key: "all")
    store = RetryingStore(counting, counting.counters, SETTINGS, clock=CLOCK, entropy=ENTROPY)
    unforced = store.unforced()
    assert unforced is not None
    assert unforced._budget is store._budget
    unforced.put_if_absent("log/0", b"four")
    store.put_if_absent("log/1", b"four")
    assert [info.key for info in unforced.list("")] == ["log/0", "log/1"]
    assert store.counters is unforced.counters
    assert store.counters.by_kind()["put"] == RequestCount(2, 8)


@pytest.mark.parametrize("front", FRONTS, ids=NAMES)
def test_store_without_a_disk_has_no_unforced_form(
    front: Callable[[ObjectStore], ObjectStore],
) -> None:
    assert front(Folder()).unforced() is None


def test_delegating_store_forwards_every_operation_but_unforced() -> None:
    operations = {name for name in vars(ObjectStore) if callable(getattr(ObjectStore, name))}
    operations = {name for name in operations if not name.startswith("_")}
    assert operations - set(vars(DelegatingStore)) == {"unforced"}
