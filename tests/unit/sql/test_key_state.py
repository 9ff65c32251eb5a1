"""The newest record of a key: the steps and requests of a look-up, and what it returns."""

from __future__ import annotations

from random import Random

import pytest

from sparklog.core.config.topic import parse_topic_configs
from sparklog.log.cleanup.compaction_policy import CompactionPolicy
from sparklog.log.cleanup.compactor import Compactor
from sparklog.log.cleanup.rewriter import Encoding
from sparklog.sql.queryable_log import QueryableLog
from sparklog.store.memory import MemoryStore
from tests.harness.log_records import batch
from tests.harness.request_steps import RequestSteps, SteppedPool, SteppedStore

SEGMENTS = 12
KEYS = [b"key-%d" % n for n in range(200)]
DEEP = b"key-deep"
"""In the ninth newest segment alone."""
INDEXED = {"sparklog.key.index": "bloom", "cleanup.policy": "compact"}
LARGE_BYTES = 2000
"""Random bytes of a value: a segment of them is half a megabyte."""


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> RequestSteps:
    counted = RequestSteps()
    for module in ("cluster.log", "sql.topics", "spark.source.early_look"):
        monkeypatch.setattr(
            f"sparklog.{module}.ThreadPoolExecutor", lambda *_: SteppedPool(counted)
        )
    return counted


def filled(value_bytes: int = 10) -> MemoryStore:
    """Return a store with a topic of twelve segments, each with all keys."""
    store, random = MemoryStore("state"), Random(7)
    log = QueryableLog(store)
    log.create_topic("t", 1, INDEXED)
    for number in range(SEGMENTS):
        keys = [*KEYS, *([DEEP] if number == SEGMENTS - 9 else [])]
        values = [b"%d " % number + random.randbytes(value_bytes) for _ in keys]
        log.partition("t", 0).append([batch(values, keys=keys)])
    return store


def opened(store: MemoryStore, steps: RequestSteps) -> QueryableLog:
    """Return the log as another process opens it, and begin to count."""
    steps.clear()
    return QueryableLog(SteppedStore(store, steps))


def number_of(value: bytes | None) -> bytes:
    assert value is not None
    return value.split(b" ")[0]


def test_look_up_of_a_key_takes_three_steps_in_small_segments(steps: RequestSteps) -> None:
    log = opened(filled(), steps)
    assert number_of(log.get("t", DEEP)) == b"3"
    assert steps.now == 3
    assert len(steps.requests) == len(set(steps.requests)) + 1, "the registry's manifests, again"
    assert len(steps.requests) == SEGMENTS + 7
    steps.clear()
    assert number_of(log.get("t", b"key-7")) == b"11"
    assert steps.now == 2
    assert log.get("t", b"nothing") is None


def test_look_up_takes_three_steps_above_a_manifest(steps: RequestSteps) -> None:
    store = filled()
    writer = QueryableLog(store).partition("t", 0)
    writer.absorb_tail()
    writer.append([batch([b"new "], keys=[b"key-7"])])
    log = opened(store, steps)
    assert number_of(log.get("t", b"key-7")) == b"new"
    assert steps.now == 3
    assert len(steps.requests) == SEGMENTS + 9


def test_look_up_of_a_key_takes_five_steps_in_large_segments(steps: RequestSteps) -> None:
    store = filled(LARGE_BYTES)
    QueryableLog(store).partition("t", 0).absorb_tail()
    log = opened(store, steps)
    assert number_of(log.get("t", DEEP)) == b"3"
    assert steps.now == 5
    assert len(steps.requests) <= SEGMENTS + 12


def test_newest_value_is_found_in_the_tail_and_below_it(steps: RequestSteps) -> None:
    store = filled()
    writer = QueryableLog(store).partition("t", 0)
    writer.absorb_tail()
    log = opened(store, steps)
    assert number_of(log.get("t", DEEP)) == b"3"
    writer.append([batch([b"new "], keys=[DEEP])])
    assert number_of(log.get("t", DEEP)) == b"new"
    writer.append([batch([None], keys=[DEEP])])
    for reader in (log, opened(store, steps)):
        assert reader.get("t", DEEP) is None
        assert number_of(reader.get("t", b"key-0")) == b"11"


def test_newest_value_is_found_after_a_compaction(steps: RequestSteps) -> None:
    store = filled()
    log = opened(store, steps)
    assert number_of(log.get("t", DEEP)) == b"3"
    writer = QueryableLog(store)
    partition = writer.partition("t", 0)
    policy = CompactionPolicy.of(parse_topic_configs({"cleanup.policy": "compact"}))
    with SteppedPool(steps) as pool:
        Compactor(store, partition.layout, policy, Encoding("lz4", None, True), pool).compact(
            force=True
        )
    partition.append([batch([b"late "], keys=[b"key-1"])])
    for reader in (log, opened(store, steps)):
        assert number_of(reader.get("t", DEEP)) == b"3"
        assert number_of(reader.get("t", b"key-1")) == b"late"
        assert number_of(reader.get("t", b"key-2")) == b"11"
