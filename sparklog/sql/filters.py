"""The filter of a scan as a tree, which decides what cannot have a matching record. Pure.

DuckDB hands a scan its filter as an Arrow expression. Arrow gives no access to the parts of an
expression, so this module reads its text. A part in another form is `Unknown`, which may match
anything: the result is then a longer read, never a wrong answer. The scan applies the expression
itself to every record that it reads.

Timestamps are microseconds since 1970; intervals include both ends.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from typing import Final, NamedTuple, TypeAlias

Value: TypeAlias = int | bytes | str


class Interval(NamedTuple):
    """Numbers from `low` to `high`, both included."""

    low: float
    high: float

    def meets(self, other: Interval) -> bool:
        """Return True if both have a number in common."""
        return self.low <= other.high and other.low <= self.high


ANY: Final = Interval(-inf, inf)
NONE: Final = Interval(inf, -inf)


@dataclass(frozen=True, slots=True)
class Unknown:
    """A condition that this module does not understand."""


@dataclass(frozen=True, slots=True)
class Among:
    """A column has one of some values."""

    column: str
    values: frozenset[Value]


@dataclass(frozen=True, slots=True)
class Within:
    """A column of numbers is in an interval."""

    column: str
    interval: Interval


@dataclass(frozen=True, slots=True)
class AllOf:
    """Every part holds."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one part holds."""

    parts: tuple[Condition, ...]


Condition: TypeAlias = "Unknown | Among | Within | AllOf | AnyOf"
Known: TypeAlias = Mapping[str, Interval]
"""Facts about some records: the interval of a column's numbers."""

_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<text>"(?:[^"\\]|\\.)*")
    | (?P<time>-?\d{4,}-\d\d-\d\d\ \d\d:\d\d:\d\d(?:\.\d+)?Z)
    | (?P<number>-?\d+(?![\w.:-]))
    | (?P<hex>(?:[0-9A-F]{2})+(?=\s*[,\]]))
    | (?P<name>[A-Za-z_]\w*)
    | (?P<mark>==|!=|<=|>=|[<>(){}\[\]=:,])
    )""",
    re.VERBOSE,
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class _Unreadable(Exception):
    """The text is not in a form that this module knows."""


def condition_of(text: str | None) -> Condition:
    """Return the condition that the text of an Arrow expression states; None is no filter."""
    if text is None:
        return Unknown()
    try:
        reader = _Reader(_tokens(text))
        found = reader.condition()
        reader.finish()
    except (_Unreadable, ValueError, OverflowError):
        return Unknown()
    return found


def may_match(condition: Condition, known: Known) -> bool:
    """Return False if no record within `known` meets the condition."""
    match condition:
        case AllOf(parts):
            return all(may_match(part, known) for part in parts)
        case AnyOf(parts):
            return any(may_match(part, known) for part in parts)
        case Within(column, interval):
            return column not in known or known[column].meets(interval)
        case Among(column, values) if column in known:
            low, high = known[column]
            return any(isinstance(v, int) and low <= v <= high for v in values)
    return True


def hull(condition: Condition, column: str, known: Known) -> Interval:
    """Return an interval that has the column's number of every record that matches."""
    match condition:
        case AllOf(parts):
            hulls = [hull(part, column, known) for part in parts]
            return Interval(max(h.low for h in hulls), min(h.high for h in hulls))
        case AnyOf(parts):
            hulls = [hull(part, column, known) for part in parts if may_match(part, known)]
            if not hulls:
                return NONE
            return Interval(min(h.low for h in hulls), max(h.high for h in hulls))
        case Within(name, interval) if name == column:
            return interval
        case Among(name, values) if name == column:
            numbers = [v for v in values if isinstance(v, int)]
            return Interval(min(numbers), max(numbers)) if numbers else NONE
    return ANY


def keys_of(condition: Condition, known: Known) -> frozenset[bytes] | None:
    """Return the keys of which every matching record has one, or None: it may have any."""
    match condition:
        case AllOf(parts):
            found = [k for part in parts if (k := keys_of(part, known)) is not None]
            return min(found, key=len) if found else None
        case AnyOf(parts):
            each = [keys_of(part, known) for part in parts if may_match(part, known)]
            return None if None in each else frozenset().union(*(k for k in each if k is not None))
        case Among("key", values):
            return frozenset(v for v in values if isinstance(v, bytes))
    return None


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at = [], 0
    end = len(text.rstrip())
    while at < end:
        match = _TOKEN.match(text, at)
        if match is None or match.lastgroup is None:
            raise _Unreadable
        found.append((match.lastgroup, match[match.lastgroup]))
        at = match.end()
    return found


class _Reader:
    """Reads a list of tokens once, from left to right."""

    def __init__(self, tokens: Sequence[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._at = 0

    def finish(self) -> None:
        if self._at != len(self._tokens):
            raise _Unreadable

    def condition(self) -> Condition:
        kind, text = self._peek()
        if text == "(" and kind == "mark":
            return self._in_parentheses()
        if kind != "name":
            raise _Unreadable
        return self._call()

    def _in_parentheses(self) -> Condition:
        self._expect("(")
        kind, text = self._peek()
        following = self._tokens[self._at + 1][1] if self._at + 1 < len(self._tokens) else ""
        if kind == "name" and following not in {"(", "["}:
            self._next()
            found = _compared(text, self._next()[1], self._literal(text))
            self._expect(")")
            return found
        parts = [self.condition()]
        word = self._peek()[1]
        while self._peek()[1] == word and word in {"and", "or"}:
            self._next()
            parts.append(self.condition())
        self._expect(")")
        return AnyOf(tuple(parts)) if word == "or" else AllOf(tuple(parts))

    def _call(self) -> Condition:
        name = self._next()[1]
        begin = self._at
        if name == "if_else":
            found = self._where_valid()
            if found is not None:
                return found
        elif name == "is_in":
            found = self._is_in()
            if found is not None:
                return found
        self._at = begin
        self._skip()
        return Unknown()

    def _where_valid(self) -> Condition | None:
        """Return X of `if_else(is_valid(column), X, null[bool])`."""
        self._expect("(")
        for word in ("is_valid", "("):
            if self._next()[1] != word:
                return None
        self._next()
        self._expect(")")
        self._expect(",")
        found = self.condition()
        rest = [self._next()[1] for _ in range(6)]
        return found if rest == [",", "null", "[", "bool", "]", ")"] else None

    def _is_in(self) -> Condition | None:
        """Return the values of `is_in(column, {value_set=type:[…], null_matching_behavior=…})`."""
        self._expect("(")
        column = self._next()[1]
        for word in (",", "{", "value_set", "="):
            self._expect(word)
        before = ""
        while (mark := self._next()[1]) != "[" or before != ":":
            before = mark  # a type may have brackets of its own: timestamp[us, tz=UTC]
        values: set[Value] = set()
        while True:
            values.add(self._literal(column))
            mark = self._next()[1]
            if mark == "]":
                break
            if mark != ",":
                return None
        self._skip_to_end()
        return Among(column, frozenset(values))

    def _skip_to_end(self) -> None:
        """Pass the rest of the call whose opening parenthesis was read."""
        depth = 1
        while depth:
            mark = self._next()
            if mark[0] == "mark":
                depth += {"(": 1, ")": -1}.get(mark[1], 0)

    def _skip(self) -> None:
        self._expect("(")
        self._skip_to_end()

    def _literal(self, column: str) -> Value:
        kind, text = self._next()
        if column in {"key", "value"}:
            if kind == "text":
                return bytes.fromhex(text[1:-1])
            if kind in {"hex", "number"}:  # digits alone are hexadecimal, too
                return bytes.fromhex(text)
            raise _Unreadable
        if kind == "number":
            return int(text)
        if kind == "time":
            return _microseconds(text)
        if kind == "text":
            return text
        raise _Unreadable

    def _peek(self) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            raise _Unreadable
        return self._tokens[self._at]

    def _next(self) -> tuple[str, str]:
        found = self._peek()
        self._at += 1
        return found

    def _expect(self, text: str) -> None:
        if self._next() != ("mark", text) and self._tokens[self._at - 1] != ("name", text):
            raise _Unreadable


def _compared(column: str, operator: str, value: Value) -> Condition:
    if operator == "==":
        return Among(column, frozenset([value]))
    if not isinstance(value, int):
        return Unknown()
    intervals = {
        "<": Interval(-inf, value - 1),
        "<=": Interval(-inf, value),
        ">": Interval(value + 1, inf),
        ">=": Interval(value, inf),
    }
    return Within(column, intervals[operator]) if operator in intervals else Unknown()


def _microseconds(text: str) -> int:
    day, _, clock = text.removesuffix("Z").partition(" ")
    whole, _, fraction = clock.partition(".")
    seconds = int((datetime.fromisoformat(f"{day} {whole}+00:00") - _EPOCH).total_seconds())
    return seconds * 1_000_000 + int(fraction.ljust(6, "0")[:6] or 0)
