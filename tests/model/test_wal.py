"""The write-ahead log, model-checked: a broker, its trimming and its sealers in every order.

The broker has several requests under way at once. It flushes acknowledged records at once, so it
trims as early as it may. It continues as long as it can. Recoveries seal, read and perhaps clear.
In each state the acknowledged windows are below the seal, and each recovery has read them. Or they
were flushed: the store has a window whose trim boundary is above them. And every recovery comes to
its end.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest

from sparklog.core.errors import Fenced
from sparklog.log.effects import Effect, Program, delete
from sparklog.log.layout import WalLayout
from sparklog.log.wal import objects as wal_object
from sparklog.log.wal import sealing
from sparklog.log.wal import writer as wal
from sparklog.log.wal.objects import WalBatch, WalHeader, WalKind, WalObject
from sparklog.log.wal.recovery import read_early
from sparklog.log.wal.sealing import (
    MARK_BYTES_MAX,
    LogTail,
    Sealed,
    TornWindow,
    clear,
    read_sealed,
    read_tail,
    seal,
)
from sparklog.log.wal.writer import (
    Acknowledge,
    Flushed,
    Instruction,
    PutOutcomes,
    PutSettled,
    PutWindow,
    Trim,
    WalWriter,
    WindowReady,
    place,
    register,
)
from sparklog.store.base import PutOutcome
from tests.model.explorer import TORN, Actor, AnyOf, Explorer, Objects, State

WAL = WalLayout(1, "0" * 32)
EARLY_BYTES = 1 << 20
LARGE = WalBatch("topic", 0, 0, 1, bytes(MARK_BYTES_MAX))
"""Makes a window larger than any mark; the others are as small as one, as older versions' were."""
REGISTRATION = wal_object.encode(WAL, WalHeader(WalKind.REGISTRATION, 0, 0, "registration"))
UNFORCED = wal_object.encode(WAL, WalHeader(WalKind.REGISTRATION, 0, 0, "registration", False))


@pytest.fixture(autouse=True)
def _each_object_is_coded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Coding is a function of its arguments alone, and would otherwise take most of the time."""
    for module in (wal, sealing, sealing):
        for name in {"encode", "decode", "decode_header"} & vars(module).keys():
            monkeypatch.setattr(module, name, cache(getattr(wal_object, name)))


@pytest.fixture(autouse=True)
def _windows_may_be_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wal_object, "WINDOW_BYTES_MIN", 0)


@dataclass(frozen=True)
class Acknowledged:
    end_sequence: int


@dataclass(frozen=True)
class Recovered:
    read: frozenset[int]


@dataclass(frozen=True)
class Cleared:
    """All that was recovered is in the partitions' own logs; deleting begins."""

    end_sequence: int


class Broker:
    """Runs what the writer instructs, all at once, as the shell of a broker does."""

    def __init__(
        self,
        windows: int,
        in_flight_max: int,
        registered: bool,
        done: Callable[[Any], None],
        forced: bool = True,
    ) -> None:
        self.writer = WalWriter(in_flight_max, forced=forced)
        self.windows_left = windows
        self.done = done
        self.under_way: list[tuple[Effect, Program[Any]]] = []
        self.registered = registered

    def run(self) -> Generator[Effect | AnyOf, Any, None]:
        if not self.registered:
            try:
                yield from register(WAL, "registration")
            except Fenced:
                return
        while effects := self._effects():
            index, answer = yield AnyOf(effects)
            _, task = self.under_way.pop(index)
            self._go_on(task, list(answer) if isinstance(answer, tuple) else answer)

    def _effects(self) -> tuple[Effect, ...]:
        while self.windows_left > 0 and self.writer.has_capacity:
            self.windows_left -= 1
            self._execute(self.writer.handle(WindowReady()))
        return tuple(effect for effect, _ in self.under_way)

    def _go_on(self, task: Program[Any], answer: Any) -> None:
        try:
            self.under_way.append((task.send(answer), task))
        except StopIteration as end:
            if end.value is not None:
                self._execute(self.writer.handle(end.value))

    def _execute(self, instructions: Sequence[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case PutWindow():
                    self._go_on(self._put(instruction), None)
                case Acknowledge(end_sequence):
                    self.done(Acknowledged(end_sequence))
                    self.writer.handle(Flushed(end_sequence))
                case Trim():
                    self._go_on(self._trim(instruction), None)

    def _put(self, what: PutWindow) -> Program[PutSettled]:
        batches = (LARGE,) if what.sequence % 2 else ()
        settled = yield from place(what.placed(WAL, batches, f"window {what.sequence}"))
        return PutSettled(what.sequence, settled)

    def _trim(self, what: Trim) -> Program[None]:
        for sequence in range(what.start_sequence, what.end_sequence):
            yield from delete(WAL.key(sequence))


def _broker(windows: int, in_flight_max: int = 2, registered: bool = True) -> Actor:
    return Actor("broker", lambda done: Broker(windows, in_flight_max, registered, done).run())


def _unforced_broker(windows: int, in_flight_max: int = 2) -> Actor:
    return Actor("broker", lambda done: Broker(windows, in_flight_max, True, done, False).run())


def _recovery(
    name: str, clears: bool = False, looks_anew: bool = True, reads_early: bool = False
) -> Actor:
    """Seals, and reads the rest: anew, as after the metadata says that it is sealed, or from there.

    With `reads_early` it reads all windows once before it seals.
    """

    def start(done: Callable[[Any], None]) -> Program[None]:
        early = (yield from read_early(WAL, EARLY_BYTES)) if reads_early else None
        sealed = yield from seal(WAL, name)
        done(sealed)
        if looks_anew:
            found = yield from read_sealed(WAL, early)
            assert found is not None, "the seal is not seen"
            sealed, tail = found
            done(sealed)
        else:
            tail = yield from read_tail(WAL, sealed)
        done(Recovered(frozenset(o.header.sequence for o in tail.windows)))
        if clears:
            done(Cleared(sealed.sequence))
            yield from clear(WAL, sealed)

    return Actor(name, start)


@cache
def _carried(objects: Objects) -> int:
    """Return the highest boundary that a window in the store carries: so much was flushed."""
    found = [WAL.sequence(key) for key, _ in objects]
    headers = [
        _header(data, sequence)
        for (_, data), sequence in zip(objects, found, strict=True)
        if sequence is not None and data != TORN
    ]
    return max((h.boundary for h in headers if h.kind is WalKind.WINDOW), default=0)


@cache
def _header(data: bytes, sequence: int) -> WalHeader:
    return wal_object.decode_header(data, WAL, sequence)


class Checker:
    """Judges a state; `finals` counts how many ends were judged."""

    def __init__(self, explorer: Explorer) -> None:
        self.explorer = explorer
        self.finals = 0

    def __call__(self, state: State, final: bool) -> None:
        self.finals += final
        acknowledged, flushed, seals, recoveries = 1, _carried(state.objects), set(), []
        for actor, history in enumerate(state.histories):
            standing = self.explorer.standing(actor, history)
            assert standing.error is None, standing.error
            for report in standing.reports:
                match report:
                    case Acknowledged(end_sequence):
                        acknowledged = max(acknowledged, end_sequence)
                    case Sealed(sequence):
                        seals.add(sequence)
                    case Recovered(read):
                        recoveries.append(read)
                    case Cleared(end_sequence):
                        flushed = max(flushed, end_sequence)
            if final and self._recovers(actor) and not state.crashed[actor]:
                assert any(isinstance(r, Recovered) for r in standing.reports), "never finished"
        assert len(seals) <= 1, f"sealed in two places: {seals}"
        damaged = [WAL.sequence(key) or 0 for key in state.damaged]
        for sequence in seals:
            assert damaged or acknowledged <= max(sequence, 1), (
                f"acknowledged past the seal {sequence}"
            )
        for read in recoveries:
            lost = {*range(max(flushed, 1), acknowledged)} - read
            if not damaged:
                assert not lost, f"lost: {lost}"
            elif lost:
                assert min(lost) >= min(damaged), f"lost before the first damaged: {lost}"
                assert min(lost) > max(read, default=0), f"a hole: {lost} and {read}"

    def _recovers(self, actor: int) -> bool:
        return self.explorer.actors[actor].name != "broker"


def _explore(
    actors: list[Actor],
    *,
    registered: bool = True,
    registration: bytes = REGISTRATION,
    **budget: Any,
) -> tuple[int, Checker]:
    explorer = Explorer(actors)
    checker = Checker(explorer)
    objects = ((WAL.key(0), registration),) if registered else ()
    return explorer.explore(explorer.start(objects, **budget), checker), checker


ONE, CLEARING, OTHER = _recovery("a"), _recovery("a", clears=True), _recovery("b")
CLEARING_B = _recovery("b", clears=True)
GOING_ON = _recovery("a", looks_anew=False)
EARLY = _recovery("a", reads_early=True)

CASES: dict[str, tuple[list[Actor], dict[str, Any]]] = {
    "a broker and a recovery": ([_broker(4), ONE], {}),
    "a recovery that goes on from its seal": ([_broker(4), GOING_ON], {}),
    "windows read before the seal": ([_broker(3), EARLY], {}),
    "windows read before another recovery clears": ([_broker(0), CLEARING_B, EARLY], {}),
    "one put at a time": ([_broker(3, in_flight_max=1), ONE], {}),
    "an incarnation that registers": ([_broker(2, registered=False), ONE], {"registered": False}),
    "crashes": ([_broker(3), CLEARING], {"crashes": 2}),
    "a lost reply": ([_broker(3), ONE], {"lost_replies": 1}),
    "a put that arrives late": ([_broker(2), CLEARING], {"late_puts": 1}),
    "two recoveries": ([_broker(1), ONE, OTHER], {}),
    "two recoveries that clear": ([CLEARING, _recovery("b", clears=True)], {"crashes": 1}),
    "no power, not forced": (
        [_unforced_broker(3), ONE],
        {"power_cuts": 1, "registration": UNFORCED},
    ),
    "no power, not forced, two recoveries": (
        [_unforced_broker(2), ONE, OTHER],
        {"power_cuts": 1, "registration": UNFORCED},
    ),
    "no power, not forced, going on from the seal": (
        [_unforced_broker(3), GOING_ON],
        {"power_cuts": 1, "registration": UNFORCED},
    ),
}

SOAK: dict[str, tuple[list[Actor], dict[str, Any]]] = {
    "a clearing recovery": ([_broker(4), CLEARING], {}),
    "three windows and a late put": ([_broker(3), ONE], {"late_puts": 1}),
    "three windows, two of them read before the seal": ([_broker(3), EARLY], {"late_puts": 1}),
    "a window read before another recovery clears": ([_broker(1, 1), CLEARING_B, EARLY], {}),
    "three windows, a lost reply, a crash": (
        [_broker(3), CLEARING],
        {"lost_replies": 1, "crashes": 1},
    ),
    "a window, two recoveries of which one clears": ([_broker(1, 1), CLEARING, OTHER], {}),
    "two windows, two recoveries": ([_broker(2), ONE, OTHER], {}),
}


@pytest.mark.parametrize("case", CASES)
def test_acknowledged_windows_are_recovered(case: str) -> None:
    actors, budget = CASES[case]
    states, checker = _explore(actors, **budget)
    print(f"{case}: {states} states, {checker.finals} ends")
    assert checker.finals > 0


@pytest.mark.soak
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("case", SOAK)
def test_acknowledged_windows_are_recovered_in_larger_cases(case: str) -> None:
    actors, budget = SOAK[case]
    states, checker = _explore(actors, **budget)
    print(f"{case}: {states} states, {checker.finals} ends")
    assert checker.finals > 0


def test_model_finds_a_lost_window_without_a_second_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def believe_the_put(layout: WalLayout, nonce: str) -> Program[Sealed]:
        while True:
            look = yield from sealing._survey(layout, {})
            if look.seal is not None:
                return Sealed(look.seal, look.boundary)
            mark = sealing._put_mark(layout, WalKind.SEAL, look.gap, look, nonce)
            if (yield from mark)[1] is PutOutcome.CREATED:
                return Sealed(look.gap, look.boundary)

    monkeypatch.setitem(globals(), "seal", believe_the_put)
    with pytest.raises(AssertionError, match="acknowledged past the seal"):
        _explore([_broker(4), ONE])


def test_model_finds_a_useless_seal_without_the_look_from_the_seal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def believe_a_look(layout: WalLayout, nonce: str) -> Program[Sealed]:
        while True:
            look = yield from sealing._survey(layout, {})
            if look.seal is not None:
                return Sealed(look.seal, look.boundary)
            yield from sealing._put_mark(layout, WalKind.SEAL, look.gap, look, nonce)

    monkeypatch.setitem(globals(), "seal", believe_a_look)
    with pytest.raises(AssertionError, match="acknowledged past the seal"):
        _explore([_broker(4), ONE], late_puts=1)


def test_model_finds_a_lost_window_with_the_seal_at_another_gap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def behind_everything(sequences: Sequence[int], boundary: int) -> int:
        return max(sequences, default=-1) + 1

    monkeypatch.setattr(sealing, "_first_gap", behind_everything)
    with pytest.raises(AssertionError, match="lost"):
        _explore([_broker(3), ONE])


def test_model_finds_a_lost_window_when_trimmed_too_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Flushed and acknowledged, yet no acknowledged object shows that these names are used up.
    monkeypatch.setattr(WalWriter, "_trim_end", lambda writer: writer.acknowledged + 1)
    with pytest.raises(AssertionError, match=r"lost|past the seal|is missing"):
        _explore([_broker(3), ONE])


def test_model_finds_a_lost_window_when_acknowledged_out_of_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        WalWriter, "_newest_in_order", lambda writer: max(writer._durable | {writer.acknowledged})
    )
    with pytest.raises(AssertionError, match=r"lost|past the seal"):
        _explore([_broker(3), ONE])


def test_model_finds_a_lost_window_when_foreign_objects_count_as_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(wal, "_whose", lambda found, ours: PutOutcomes.DURABLE)
    with pytest.raises(AssertionError, match=r"lost|past the seal"):
        _explore([_broker(2), ONE])


def test_model_finds_a_lost_window_without_a_kept_seal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def clear_all(layout: WalLayout, sealed: Sealed) -> Program[None]:
        for sequence in range(sealed.sequence + 1):
            yield from delete(layout.key(sequence))

    monkeypatch.setitem(globals(), "clear", clear_all)
    with pytest.raises(AssertionError, match=r"lost|past the seal"):
        _explore([_broker(2), CLEARING])


def _explore_without_power() -> None:
    for actors in ([_unforced_broker(3), ONE], [_unforced_broker(2), ONE, OTHER]):
        _explore(actors, power_cuts=1, registration=UNFORCED)


def test_model_finds_damage_with_a_boundary_that_is_not_forced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never_forced(writer: WalWriter) -> PutWindow:
        return replace(number(writer), forced=False)

    number = WalWriter._number
    monkeypatch.setattr(WalWriter, "_number", never_forced)
    with pytest.raises(AssertionError, match=r"lost before|truncated|hole"):
        _explore_without_power()


def test_model_finds_a_hole_when_a_read_skips_missing_windows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def all_there_is(objects: Sequence[WalObject | TornWindow], sealed: Sealed) -> LogTail:
        whole = [one for one in objects if isinstance(one, WalObject)]
        windows = [one for one in whole if one.header.kind is WalKind.WINDOW]
        return LogTail(tuple(o for o in windows if o.header.sequence < sealed.sequence))

    monkeypatch.setattr(sealing, "_tail", all_there_is)
    with pytest.raises(AssertionError, match="hole"):
        _explore_without_power()
