"""Evidence about a store from one raced name."""

from __future__ import annotations

import pytest

from sparklog.core.clock import SYSTEM_CLOCK, ManualClock
from sparklog.core.entropy import SYSTEM_ENTROPY, SeededEntropy
from sparklog.core.errors import InvalidConfig
from sparklog.store.base import Data, PutOutcome, TransientStoreError
from sparklog.store.file import FileStore
from sparklog.store.memory import MemoryStore
from sparklog.store.probe_race import NAMES, RaceOutcome, judge, race

C, E, U = PutOutcome.CREATED, PutOutcome.EXISTS, PutOutcome.UNKNOWN
BODIES = [b"aa", b"bb", b"cc", b"dd"]


@pytest.mark.parametrize(
    ("outcomes", "stored", "verdict"),
    [
        ([E, C, E, E], b"bb", RaceOutcome.HOLDS),
        ([E, C, U, E], b"bb", RaceOutcome.HOLDS),
        ([C, C, E, E], b"aa", RaceOutcome.BROKEN),
        ([C, C, C, C], b"dd", RaceOutcome.BROKEN),
        ([E, C, E, E], b"aa", RaceOutcome.BROKEN),  # a refused body is stored
        ([E, C, U, E], b"cc", RaceOutcome.BROKEN),  # so two creates succeeded
        ([E, C, E, E], b"bc", RaceOutcome.BROKEN),  # a mixture
        ([E, C, E, E], b"b", RaceOutcome.BROKEN),  # a part
        ([E, C, E, E], None, RaceOutcome.BROKEN),  # not there
        ([U, E, E, E], b"ab", RaceOutcome.BROKEN),
        ([U, E, E, E], b"aa", RaceOutcome.UNCLEAR),
        ([U, C, U, U], b"bb", RaceOutcome.UNCLEAR),
        ([E, E, E, E], b"aa", RaceOutcome.UNCLEAR),  # a layer between repeated a create
        ([U, U, U, U], None, RaceOutcome.UNCLEAR),
    ],
)
def test_a_raced_name_is_judged(
    outcomes: list[PutOutcome], stored: bytes | None, verdict: RaceOutcome
) -> None:
    assert judge(outcomes, BODIES, stored) is verdict


def test_stores_that_hold_win_the_race_and_keep_nothing_of_it(tmp_path: object) -> None:
    for store in (MemoryStore("race"), FileStore(str(tmp_path))):
        race(store, "probe", SYSTEM_CLOCK, SYSTEM_ENTROPY)
        assert list(store.list("")) == []


class Torn(MemoryStore):
    """Creates one object for one writer, and then writes a part of another over it."""

    def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        outcome = super().put_if_absent(key, data)
        if outcome is E:
            self.put(key, bytes(data)[:100] + self.get(key)[100:])
        return outcome


def test_a_store_that_mixes_bodies_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="kept another object"):
        race(Torn("torn"), "probe", SYSTEM_CLOCK, SYSTEM_ENTROPY)


class Losing(MemoryStore):
    """Loses most of its answers."""

    def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        outcome = super().put_if_absent(key, data)
        return U if outcome is E else outcome


def test_store_with_lost_answers_proves_nothing() -> None:
    with pytest.raises(TransientStoreError, match="too few answers"):
        race(Losing("losing"), "probe", ManualClock(), SeededEntropy(1))
    assert NAMES > 1
