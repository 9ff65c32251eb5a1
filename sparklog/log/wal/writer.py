"""WalWriter: the broker's side of its write-ahead log. Pure.

`place` determines the outcome of one put. `WalWriter` numbers the windows and keeps several puts in
flight. It acknowledges them strictly in order, and reports the names that may be deleted. Neither
reads a clock or a store. The caller decides when a window is due. Sequences number objects.

WAL-WRITER-1: A window is acknowledged only when it and all before it are durable.
WAL-WRITER-2: An object's boundary is at most the newest sequence acknowledged when it was
    numbered, and never lower than the boundary of the object before.
WAL-WRITER-3: A name may be deleted only when it is below the boundary of an acknowledged object.
    So the newest acknowledged object always stays. Sequence 0 stays, too, as long as the broker
    lives: if it is gone, the root was emptied.
WAL-WRITER-4: After one name belongs to another writer, no further window is acknowledged.
WAL-WRITER-5: In a log that is not forced to the disk, an object that raises the boundary is forced
    all the same. So no name is deleted by a boundary that a power cut could take back.

Source: WAL.md 3. `tests/model/test_wal.py` runs this code through every order of small cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from sparklog.core.errors import Fenced, OutcomeUnknown
from sparklog.log.effects import Program, get, put
from sparklog.log.layout import WalLayout
from sparklog.log.wal.objects import (
    FOOTER_READ_BYTES,
    UNKNOWN_SEQUENCE,
    WalBatch,
    WalHeader,
    WalKind,
    decode_header,
    encode,
)
from sparklog.store.base import PutOutcome

UNKNOWN_TRIES_MAX = 8
"""Tries of one put whose outcome stays unknown."""


class PutOutcomes(Enum):
    """The final outcome of a put."""

    DURABLE = "durable"
    """The object has its name, and a recovery of the log will read it."""
    FENCED = "fenced"
    """Another object has the name, usually a seal: the broker is deposed."""


@dataclass(frozen=True, slots=True)
class WindowRow:
    """An object ready to be put."""

    layout: WalLayout
    header: WalHeader
    data: bytes
    forced: bool = True
    """True if it must be on the disk when it counts."""


def register(layout: WalLayout, nonce: str, *, forced: bool = True) -> Program[None]:
    """Create sequence 0: from then on the incarnation exists and may write. One request.

    Args:
        `layout`: the incarnation's log.
        `nonce`: of this attempt.
        `forced`: True if windows will be on the disk before they count. Sequence 0 always is.

    Raises:
        Fenced: the incarnation was sealed before it started; start with a new one.
        OutcomeUnknown: the result of the put is unknown; register again with the same nonce.
        DataCorrupt: the existing object cannot be read.
    """
    header = WalHeader(WalKind.REGISTRATION, 0, 0, nonce, forced)
    settled = yield from place(WindowRow(layout, header, encode(layout, header)))
    if settled is PutOutcomes.FENCED:
        raise Fenced(
            "the incarnation is somebody else's or was sealed before it registered; "
            f"start again with a new one. object={layout.key(0)} nonce={nonce}"
        )


def place(placed: WindowRow) -> Program[PutOutcomes]:
    """Put an object under its name until the owner of the name is known. Usually one request.

    After an unknown outcome it puts the same bytes again under the same name. A late first put and
    the second cannot both win, and either is the same object.

    Raises:
        OutcomeUnknown: the result of the put is unknown. Place the very same object again, and
            acknowledge no window from this sequence on until then.
        DataCorrupt: the object under the name cannot be read.
    """
    layout, sequence = placed.layout, placed.header.sequence
    key = layout.key(sequence)
    for _ in range(UNKNOWN_TRIES_MAX):
        outcome = yield from put(key, placed.data, forced=placed.forced)
        if outcome is PutOutcome.CREATED:
            return PutOutcomes.DURABLE
        tail = yield from get(key, -FOOTER_READ_BYTES)
        if tail is not None:
            return _whose(decode_header(tail, layout, sequence), placed.header)
        # Absent after Unknown: not arrived. Absent after Exists: it was ours, and a recovery has
        # flushed it to the partitions' logs and cleared it. In both cases another put is right.
    raise OutcomeUnknown(
        "the store does not tell whether a WAL object was written; place it again. "
        f"object={key} nonce={placed.header.nonce}"
    )


def _whose(found: WalHeader, ours: WalHeader) -> PutOutcomes:
    """Return the outcome of a lost put. Store clients retry, so the object may be our own."""
    mine = found.kind is ours.kind and found.nonce == ours.nonce
    return PutOutcomes.DURABLE if mine else PutOutcomes.FENCED


@dataclass(frozen=True, slots=True)
class WindowReady:
    """Event: batches have gathered and must be written. Only while `has_capacity`."""


@dataclass(frozen=True, slots=True)
class PutSettled:
    """Event: `place` has ended for a sequence."""

    sequence: int
    settled: PutOutcomes


@dataclass(frozen=True, slots=True)
class Flushed:
    """Event: every batch in objects below `end_sequence` is in its partition's own log."""

    end_sequence: int


Event = WindowReady | PutSettled | Flushed


@dataclass(frozen=True, slots=True)
class PutWindow:
    """Instruction: encode the ready window with these numbers, and `place` it."""

    sequence: int
    boundary: int
    log_forced: bool = True
    """True if all windows of the log are forced."""
    forced: bool = True
    """True if this one is."""
    acknowledged: int = UNKNOWN_SEQUENCE
    """The newest sequence acknowledged by now."""

    def placed(self, layout: WalLayout, batches: Sequence[WalBatch], nonce: str) -> WindowRow:
        """Return the object with `batches` as instructed."""
        header = WalHeader(
            WalKind.WINDOW,
            self.sequence,
            self.boundary,
            nonce,
            self.log_forced,
            self.acknowledged,
        )
        return WindowRow(layout, header, encode(layout, header, batches), self.forced)


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Instruction: every window below `end_sequence` is durable; respond to the producers."""

    end_sequence: int


@dataclass(frozen=True, slots=True)
class Trim:
    """Instruction: the names [start_sequence, end_sequence) may be deleted, at any time."""

    start_sequence: int
    end_sequence: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Instruction: deposed, so acknowledge no further window; the sequence is for the message."""

    sequence: int


Instruction = PutWindow | Acknowledge | Trim | Stop


class WalWriter:
    """Numbers, orders and trims the windows of one registered incarnation. Not thread-safe."""

    def __init__(self, in_flight_max: int, *, forced: bool = True) -> None:
        """Allow `in_flight_max` puts at once; one is enough for order, more hide latency.

        `forced`: the same value as for `register`.
        """
        assert in_flight_max > 0, in_flight_max
        self.in_flight_max = in_flight_max
        self._forced = forced
        self.acknowledged = 0
        """The newest sequence that is durable with all before it. Registration is sequence 0."""
        self.stopped = False
        self._next = 1
        self._durable: set[int] = set()
        """Durable, but an earlier window is not."""
        self._boundaries = {0: 0}
        """The boundaries of the newest acknowledged object and of all after it."""
        self._flushed_end = 0
        self._trimmed = 0

    @property
    def in_flight(self) -> int:
        """Return the number of windows that are numbered and not acknowledged yet."""
        return self._next - 1 - self.acknowledged

    @property
    def trimmed(self) -> int:
        """Return the sequence below which names may have been deleted."""
        return self._trimmed

    @property
    def trimmable(self) -> int:
        """Return the number of names that the acknowledgement of one more window would release."""
        return min(self._flushed_end, self.acknowledged) - self._trimmed

    @property
    def has_capacity(self) -> bool:
        """Return True if another window may be put now."""
        return not self.stopped and self.in_flight < self.in_flight_max

    def handle(self, event: Event) -> tuple[Instruction, ...]:
        """Handle an event; return instructions in order. After a stop there are none."""
        if self.stopped:
            return ()
        match event:
            case WindowReady():
                return (self._number(),)
            case PutSettled(sequence, PutOutcomes.FENCED):
                self.stopped = True
                return (Stop(sequence),)
            case PutSettled(sequence):
                return self._durable_now(sequence)
            case Flushed(end_sequence):
                assert end_sequence <= self._next, (end_sequence, self._next)
                self._flushed_end = max(self._flushed_end, end_sequence)
                return ()

    def _number(self) -> PutWindow:
        assert self.has_capacity, (self.in_flight, self.in_flight_max)
        sequence, boundary = self._next, min(self._flushed_end, self.acknowledged)
        raised = boundary > self._boundaries[sequence - 1]
        self._boundaries[sequence] = boundary
        self._next += 1
        return PutWindow(
            sequence, boundary, self._forced, self._forced or raised, self.acknowledged
        )

    def _durable_now(self, sequence: int) -> tuple[Instruction, ...]:
        assert self.acknowledged < sequence < self._next, (self.acknowledged, sequence, self._next)
        self._durable.add(sequence)
        before = self.acknowledged
        self.acknowledged = self._newest_in_order()
        if self.acknowledged == before:
            return ()
        for acknowledged in range(before, self.acknowledged):
            self._durable.discard(acknowledged)
            del self._boundaries[acknowledged]
        self._durable.discard(self.acknowledged)
        acknowledge = Acknowledge(self.acknowledged + 1)
        start, self._trimmed = max(1, self._trimmed), self._trim_end()
        if start >= self._trimmed:
            return (acknowledge,)
        return (acknowledge, Trim(start, self._trimmed))

    def _newest_in_order(self) -> int:
        newest = self.acknowledged
        while newest + 1 in self._durable:
            newest += 1
        return newest

    def _trim_end(self) -> int:
        """Return the boundary of the newest acknowledged object."""
        return self._boundaries[self.acknowledged]
