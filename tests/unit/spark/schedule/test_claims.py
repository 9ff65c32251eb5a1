"""Of many applications that come to a job's time, one runs it."""

from __future__ import annotations

from uuid import uuid4

import pytest

from sparklog.core.errors import InvalidConfig, OutcomeUnknown
from sparklog.log.effects import GetMany, ListAfter, Put, run
from sparklog.log.layout import run_key, run_of_key
from sparklog.spark.schedule.claims import KEPT, RunClaim, newest, take
from sparklog.spark.schedule.file import parse_schedule
from sparklog.store.base import PutOutcome
from sparklog.store.memory import MemoryStore


@pytest.fixture
def store() -> MemoryStore:
    """An empty store."""
    return MemoryStore(uuid4().hex)


def claim(at_ms: int, run_id: str, attempt: int = 1, job: str = "nightly") -> RunClaim:
    return RunClaim(job, at_ms, attempt, run_id, claimed_ms=at_ms + 5, application=f"of {run_id}")


def test_a_time_is_claimed_once(store: MemoryStore) -> None:
    first, second = claim(1000, "a"), claim(1000, "b")
    assert run(take(first), store)
    assert not run(take(second), store)
    assert run(newest("nightly"), store) == first
    # Another attempt, another time and another job are claimed for themselves.
    assert run(take(claim(1000, "b", attempt=2)), store)
    assert run(take(claim(2000, "b")), store)
    assert run(take(claim(1000, "b", job="weekly")), store)
    assert run(newest("nightly"), store) == claim(2000, "b")
    assert run(newest("never-seen"), store) is None


def test_claim_whose_put_was_repeated_on_the_way_is_ours(store: MemoryStore) -> None:
    mine = claim(1000, "a")
    steps = take(mine)
    effect = next(steps)
    assert isinstance(effect, Put)
    store.put_if_absent(effect.key, effect.data)
    effect = steps.send(PutOutcome.EXISTS)
    assert isinstance(effect, GetMany)
    effect = steps.send([store.get(mine.key)])
    assert isinstance(effect, ListAfter)


def test_an_outcome_that_stays_unknown_is_an_error() -> None:
    def tried_for_ever() -> None:
        steps = take(claim(1000, "a"))
        next(steps)
        while True:
            assert isinstance(steps.send(PutOutcome.UNKNOWN), GetMany)
            steps.send([None])

    with pytest.raises(OutcomeUnknown):
        tried_for_ever()


def test_deleted_claim_name_cannot_be_claimed_again(store: MemoryStore) -> None:
    for number in range(KEPT + 5):
        assert run(take(claim(1000 + number, f"r{number}")), store)
    kept = [info.key for info in store.list("runs/")]
    assert kept == [claim(1000 + number, "").key for number in range(5, KEPT + 5)]
    late = claim(1002, "late")
    assert not run(take(late), store)
    found = run(newest("nightly"), store)
    assert found is not None
    assert found.run_id == f"r{KEPT + 4}"


def test_damaged_claim_is_read_from_its_name(store: MemoryStore) -> None:
    store.put_if_absent(claim(1000, "a").key, b"{")
    assert run(newest("nightly"), store) == RunClaim("nightly", 1000, 1, claimed_ms=1000)
    store.put_if_absent("runs/nightly/zzz", b"somebody else's")
    assert run(newest("nightly"), store) == RunClaim("nightly", 1000, 1, claimed_ms=1000)


@pytest.mark.parametrize(
    ("job", "is_claim"),
    [("nightly", True), ("a" * 100, True), ("a" * 101, False), ("-a", False), ("..", False)],
)
def test_claims_carry_the_names_that_a_schedule_accepts(job: str, is_claim: bool) -> None:
    key = run_key(job, 1, 0)
    assert (run_of_key(key) is not None) is is_claim
    schedule = f'[jobs."{job}"]\nkind = "retain"\ncron = "@daily"\n'
    if is_claim:
        assert [one.name for one in parse_schedule(schedule.encode(), "a file").jobs] == [job]
    else:
        with pytest.raises(InvalidConfig, match="at most 100 letters"):
            parse_schedule(schedule.encode(), "a file")
