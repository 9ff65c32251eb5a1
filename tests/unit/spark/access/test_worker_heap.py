"""Objects that a worker hides from its garbage collector, and those that it does not."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pyarrow as pa
import pytest

from sparklog.spark.access import worker_heap
from sparklog.spark.access.worker_heap import imports_kept
from sparklog.spark.sink.options import SinkOptions
from sparklog.spark.sink.writer import stage_rows
from tests.harness.source_logs import append, new_log, numbered, root_of, rows_of


class Ring:
    """Something that only the collector can free."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def fresh_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    gc.unfreeze()
    monkeypatch.setattr(worker_heap, "_kept", set())
    yield
    gc.unfreeze()


def is_kept(thing: object) -> bool:
    """Return True if the collector no longer scans it."""
    return all(one is not thing for one in gc.get_objects())


def test_first_read_and_first_write_of_a_worker_freeze_imports() -> None:
    log = new_log()
    log.create_topic("t", 1)
    append(log, "t", 0, numbered(0, 3))
    before_read = Ring()
    assert not is_kept(before_read)
    assert len(rows_of(log, subscribe="t")) == 3
    assert is_kept(before_read)
    before_write = Ring()
    assert len(rows_of(log, subscribe="t")) == 3
    assert not is_kept(before_write)
    rows = pa.RecordBatch.from_pydict({"value": pa.array([b"x"], pa.binary())})
    assert stage_rows(log, SinkOptions(root_of(log), "t"), ["value"], iter([rows]))
    assert is_kept(before_write)


def test_a_task_that_fails_keeps_it_too() -> None:
    imported = Ring()
    with pytest.raises(ValueError, match="task"), imports_kept("reading"):
        raise ValueError("of the task")
    assert is_kept(imported)


def test_garbage_of_later_tasks_is_collected() -> None:
    with imports_kept("reading"):
        pass
    with imports_kept("reading"):
        left = weakref.ref(Ring())
    gc.collect()
    assert left() is None
