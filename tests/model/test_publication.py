"""Publishing a batch, model-checked: drivers of one query in every order, with every fault.

Two drivers publish the same batch: a zombie and its successor, or one before and after a crash.
Each has staged rows of its own, for different partitions. The product's own protocols run.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from sparklog.cluster.publication import Publication, StagedPartition, decide, decode, encode
from sparklog.core.errors import SparklogError
from sparklog.log.effects import Program, create, delete, put
from sparklog.log.layout import PartitionLayout, commit_key
from sparklog.log.manifest.change import absorb_tail, change
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.append import Candidate, append
from sparklog.log.segment.builder import SegmentBuilder, build_references
from sparklog.log.segment.segment import CommitKey, CommitStamp, Reference
from tests.model.explorer import Actor, Explorer, State

TOPIC_ID = "A" * 22
KEY = CommitKey("q", 7)
RECORD = commit_key(KEY.writer, KEY.sequence)


def _layout(partition: int) -> PartitionLayout:
    return PartitionLayout("t", TOPIC_ID, partition)


def _part(partition: int, nonce: str) -> StagedPartition:
    nonce = nonce * 32
    staged = Reference(f"staged/{nonce}.arrow", 0, 1, 1, 9, nonce, 0, 0)
    return StagedPartition("t", TOPIC_ID, partition, (staged,))


@cache
def _draft(part: StagedPartition, nonce: str) -> SegmentBuilder:
    return build_references(_layout(part.partition), part.staged, nonce)


def _staged_key(part: StagedPartition) -> str:
    return _layout(part.partition).key(part.staged[0].object)


def _driver(name: str, *parts: StagedPartition) -> Actor:
    """Stages its parts, then does what `publish` does; reports when all is appended."""

    def start(done: Callable[[Any], None]) -> Program[None]:
        for part in parts:
            yield from create(_staged_key(part), b"staged")
        mine = Publication(KEY.writer, KEY.sequence, name * 32, 0, parts)
        decided = yield from decide(mine)
        if decided.nonce != mine.nonce:
            for part in mine.partitions:
                if part not in decided.partitions:
                    yield from delete(_staged_key(part))
        for part in decided.partitions:
            candidate = Candidate(_draft(part, name * 32), CommitStamp(KEY, 0))
            yield from append(PartitionView(_layout(part.partition)), candidate)
        if decided.partitions:
            done("published")

    return Actor(name, start)


def _absorber() -> Actor:
    def start(done: Callable[[Any], None]) -> Program[None]:
        yield from change(PartitionView(_layout(0)), absorb_tail(1, 0), "c" * 32)

    return Actor("absorber", start)


def _explore(
    actors: list[Actor], *, lost_replies: int = 0, late_puts: int = 0, crashes: int = 0
) -> int:
    explorer = Explorer(actors)
    ends = 0

    def check(state: State, final: bool) -> None:
        nonlocal ends
        ends += final
        objects = dict(state.objects)
        for actor, history in enumerate(state.histories):
            error = explorer.standing(actor, history).error
            assert error is None or isinstance(error, SparklogError)
        appended = {k for k in objects if "/log/" in k}
        if RECORD not in objects:
            assert not appended, "something was published before it was decided"
            return
        record = decode(objects[RECORD], RECORD)
        wanted = {p.partition: p for p in record.partitions}
        for part in record.partitions:
            assert _staged_key(part) in objects, "what the record names was deleted"
        for partition in range(3):
            here = [k for k in appended if k.startswith(_layout(partition).chain_prefix)]
            assert len(here) <= (partition in wanted), f"in the log too often: {here}"
        published = any(
            "published" in explorer.standing(a, h).reports for a, h in enumerate(state.histories)
        )
        if published:
            assert len(appended) == len(wanted), "published, but not everywhere"

    start = explorer.start(lost_replies=lost_replies, late_puts=late_puts, crashes=crashes)
    states = explorer.explore(start, check)
    print(f"{states} states, {ends} ends")
    assert ends > 0
    return ends


DRIVERS = (
    _driver("a", _part(0, "a"), _part(1, "b")),
    _driver("d", _part(1, "d"), _part(2, "e")),
)


@pytest.mark.parametrize(
    "budget",
    [{}, {"crashes": 2}, {"crashes": 1, "lost_replies": 1}, {"late_puts": 1}],
    ids=["no fault", "crashes", "a crash and a lost reply", "a put that arrives late"],
)
def test_two_drivers_publish_one_batch_once(budget: dict[str, int]) -> None:
    _explore(list(DRIVERS), **budget)


def test_two_drivers_publish_one_batch_once_during_an_absorption() -> None:
    _explore([*DRIVERS, _absorber()], crashes=1)


def test_driver_with_nothing_staged_carries_out_the_decided_batch() -> None:
    _explore([_driver("a", _part(0, "a"), _part(1, "b")), _driver("d")], crashes=1)


def test_model_finds_a_batch_of_two_halves_without_the_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def believe_ours(mine: Publication) -> Program[Publication]:
        yield from put(RECORD, encode(mine))
        return mine

    monkeypatch.setitem(globals(), "decide", believe_ours)
    with pytest.raises(AssertionError, match=r"too often|deleted|everywhere"):
        _explore(list(DRIVERS))
