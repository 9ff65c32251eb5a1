"""Direct append, model-checked: the product's own protocols in every order, with every fault.

The invariants of each state are in `log_actors`.
"""

from __future__ import annotations

import pytest

from sparklog.log.effects import Program
from sparklog.log.manifest import change
from sparklog.log.manifest.refresh import refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition import append
from sparklog.log.partition.append import Candidate
from sparklog.log.segment.segment import CommitKey
from tests.model.broken import skip_the_confirming_look
from tests.model.explorer import Actor, Explorer, State
from tests.model.log_actors import (
    Checker,
    absorber,
    explore,
    merger,
    reader,
    reader_at_once,
    trimmer,
    writer,
)

CASES: dict[str, tuple[list[Actor], dict[str, int]]] = {
    "two writers, two appends each": ([writer("a", 2), writer("b", 2)], {}),
    "two writers, lost replies": ([writer("a", 1), writer("b", 1)], {"lost_replies": 2}),
    "two writers, a put that arrives late": ([writer("a", 1), writer("b", 1)], {"late_puts": 1}),
    "two writers and a merge that deletes": ([writer("a", 1), writer("b", 1), merger()], {}),
    "a writer with a lost reply and a merge": (
        [writer("a", 2), merger()],
        {"lost_replies": 1, "crashes": 1},
    ),
    "a writer, a late put and a merge": (
        [writer("a", 1), writer("b", 1), merger()],
        {"late_puts": 1},
    ),
    "two writers, two appends each, and a merge": (
        [writer("a", 2), writer("b", 2), merger()],
        {},
    ),
    "three writers and a merge": (
        [writer("a", 1), writer("b", 1), writer("c", 1), merger()],
        {},
    ),
    "a writer and two merges": ([writer("a", 2), merger(), merger("9" * 32)], {}),
    "two writers and a trim": ([writer("a", 1), writer("b", 1), trimmer()], {}),
    "a writer and two who change the manifest": ([writer("a", 2), absorber(), absorber()], {}),
    "a reader beside a writer and a merge": (
        [writer("a", 1), merger(), reader()],
        {"crashes": 1},
    ),
    "a reader with requests at once beside a merge": ([reader_at_once(), merger()], {}),
    "a reader with requests at once beside a trim": ([reader_at_once(), trimmer()], {}),
    "a reader with requests at once beside an absorber": ([reader_at_once(), absorber()], {}),
    "a reader with requests at once, a writer and a trim": (
        [reader_at_once(), writer("b", 1), trimmer()],
        {},
    ),
    "a reader with requests at once and two who change the manifest": (
        [reader_at_once(), absorber(), absorber("9" * 32)],
        {},
    ),
    "a reader that reads ahead beside a merge": ([reader_at_once(ahead=2), merger()], {}),
    "a reader that reads ahead beside a trim": ([reader_at_once(ahead=2), trimmer()], {}),
    "a reader that reads ahead beside an absorber": ([reader_at_once(ahead=2), absorber()], {}),
    "a reader with requests at once, a writer and a merge": (
        [reader_at_once(twice=False), writer("b", 1), merger()],
        {},
    ),
    "a reader that reads ahead, a writer and a trim": (
        [reader_at_once(ahead=1, twice=False), writer("b", 1), trimmer()],
        {},
    ),
    "a reader that reads ahead, a writer and an absorber": (
        [reader_at_once(ahead=1, twice=False), writer("b", 1), absorber()],
        {},
    ),
    "a reader that reads ahead, a writer and a merge": (
        [reader_at_once(ahead=1, twice=False), writer("b", 1), merger()],
        {},
    ),
    "a reader that reads ahead and two who change the manifest": (
        [reader_at_once(ahead=2, twice=False), absorber(), absorber("9" * 32)],
        {},
    ),
    "one commit key, two writers": (
        [writer("a", 1, key=CommitKey("q", 7)), writer("b", 1, key=CommitKey("q", 7))],
        {"lost_replies": 1, "crashes": 1},
    ),
    "one commit key, two writers and an absorber": (
        [
            writer("a", 1, key=CommitKey("q", 7)),
            writer("b", 1, key=CommitKey("q", 7)),
            absorber(),
        ],
        {},
    ),
}


SLOW = {
    "three writers and a merge",
    "a reader with requests at once, a writer and a trim",
    "a reader with requests at once and two who change the manifest",
}


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=pytest.mark.soak) if c in SLOW else c for c in CASES]
)
def test_every_interleaving_keeps_acknowledged_appends_once(case: str) -> None:
    actors, budget = CASES[case]
    states, checker = explore(actors, Checker, (), **budget)
    assert checker.finals > 0
    print(f"{case}: {states} states, {checker.finals} ends")


def test_commit_key_is_applied_once_for_any_writer() -> None:
    key = CommitKey("q", 7)
    actors = [writer("a", 1, key=key), writer("b", 1, key=key)]
    explorer = Explorer(actors)

    def one_at_most(state: State, final: bool) -> None:
        segments = [k for k, _ in state.objects if "/log/" in k]
        assert len(segments) <= 1
        if final:
            assert len(segments) == 1

    explorer.explore(explorer.start(lost_replies=1), one_at_most)


def test_model_finds_a_lost_append_without_the_confirming_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    skip_the_confirming_look(monkeypatch)
    with pytest.raises(AssertionError, match="lost"):
        explore([writer("a", 1), writer("b", 1), merger()])


def test_model_finds_a_double_append_without_comparing_nonces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def somebody_elses(
        view: PartitionView, candidate: Candidate
    ) -> Program[tuple[PartitionView, None]]:
        return (yield from refresh(view)), None

    monkeypatch.setattr(append, "_taken", somebody_elses)
    with pytest.raises(AssertionError, match="twice"):
        explore([writer("a", 1)], lost_replies=1)


def test_model_finds_a_lost_version_without_the_manifest_check(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def believe(view: PartitionView) -> Program[tuple[PartitionView, bool]]:
        yield from ()
        return view, False

    # Appends still confirm; only the tail is believed without a second look.
    monkeypatch.setattr("sparklog.log.partition.append.newer_manifest", believe)
    monkeypatch.setattr(change, "newer_manifest", believe)
    with pytest.raises(AssertionError):
        explore([writer("a", 1), writer("b", 1), merger()])
