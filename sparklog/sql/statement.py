"""A statement: what kind it is, and which topics it may read. Pure, with DuckDB's own lexer.

Two spellings are added to DuckDB's SQL:
  - `offset` is a column wherever an expression may begin; DuckDB would take it for a clause only.
  - `topic VERSION AS OF 'snapshot'` and `topic TIMESTAMP AS OF 'time'`, as in Spark SQL, and
    `topic AT (VERSION => …)`, name the table at a moment.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Final, NamedTuple

from sparklog.core.errors import InvalidRequest
from sparklog.sql.decoded_views import FORMATS
from sparklog.sql.topics import PRESENT, Moment

STATEMENT_BYTES_MAX: Final = 1 << 20
KINDS: Final = (
    "select",
    "from",
    "with",
    "values",
    "describe",
    "desc",
    "show",
    "summarize",
    "table",
)
_ENDS_EXPRESSION: Final = frozenset(
    {"null", "true", "false", "end", "asc", "desc", "first", "last", "all", "row", "rows"}
)


@dataclass(frozen=True, slots=True)
class Token:
    """One word or mark, as DuckDB's lexer cuts it; comments are left out."""

    text: str
    kind: str
    """identifier, keyword, string_const, numeric_const or operator."""
    start: int
    """Its first byte in the text."""
    end: int

    @property
    def name(self) -> str:
        """Return the name that an identifier or a string spells."""
        quote = self.text[:1]
        if quote in {'"', "'"} and self.text.endswith(quote) and len(self.text) > 1:
            return self.text[1:-1].replace(quote * 2, quote)
        return self.text

    def is_word(self, *words: str) -> bool:
        """Return True if it is one of these words, unquoted."""
        return self.kind in {"identifier", "keyword"} and self.text.lower() in words


class Edit(NamedTuple):
    """The replacement of some bytes of a statement."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class TableName:
    """A table that a statement may read."""

    name: str
    """As the statement spells it now: a topic, or a topic and its moment."""
    topic: str
    moment: Moment = PRESENT
    formats: frozenset[str] = frozenset()
    """Schemas under which it appears, too: json and text have decoded views."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement that only reads."""

    sql: str
    """In DuckDB's spelling; of EXPLAIN, what it explains."""
    tables: tuple[TableName, ...]
    explains: bool = False
    analyzes: bool = False
    shows_all: bool = False
    """It lists tables, so all topics must be known."""


def parse_statement(text: str, topics: Collection[str]) -> Statement:
    """Return the statement of a text.

    Args:
        text: one statement; a semicolon may end it.
        topics: the names of all topics.

    Raises:
        InvalidRequest: not one statement, one that is not read-only, or an impossible moment.
    """
    if len(text.encode()) > STATEMENT_BYTES_MAX:
        raise InvalidRequest(f"the statement is longer than {STATEMENT_BYTES_MAX:,} bytes")
    tokens = list(tokens_of(text))
    while tokens and tokens[-1].text == ";":
        tokens.pop()
    if not tokens:
        raise InvalidRequest("the statement is empty")
    if any(token.text == ";" for token in tokens):
        raise InvalidRequest("give one statement; a semicolon is allowed at its end only")
    explains = tokens[0].is_word("explain")
    analyzes = explains and len(tokens) > 1 and tokens[1].is_word("analyze")
    tokens = tokens[explains + analyzes :]
    if not tokens or not (tokens[0].text == "(" or tokens[0].is_word(*KINDS)):
        first = tokens[0].text if tokens else "EXPLAIN"
        raise InvalidRequest(
            "queries only read: a statement begins with SELECT, FROM, WITH, VALUES, DESCRIBE, "
            f"SHOW, SUMMARIZE or EXPLAIN. statement={first}"
        )
    edits, found = _moments(tokens)
    for at, token in enumerate(tokens):
        if token.kind != "operator" and token.name in topics:
            known = found.get(token.name, TableName(token.name, token.name))
            found[known.name] = replace(known, formats=known.formats | _format_before(tokens, at))
    _check_case(found)
    edits += [Edit(t.start, t.end, '"offset"') for t in _offset_columns(tokens)]
    return Statement(
        _edited(text.encode()[: tokens[-1].end], tokens[0].start, edits),
        tuple(found.values()),
        explains,
        analyzes,
        tokens[0].is_word("show"),
    )


def tokens_of(text: str) -> Iterator[Token]:
    """Yield the tokens of a text, without comments."""
    import duckdb  # noqa: PLC0415 - an extra, which only queries need

    data = text.encode()
    cuts = [(position, str(kind).rpartition(".")[2]) for position, kind in duckdb.tokenize(text)]
    ends = [*(position for position, _ in cuts), len(data)][1:]
    for (start, kind), end in zip(cuts, ends, strict=True):
        found = data[start:end].decode().strip()
        if kind != "comment" and found:
            yield Token(found, kind, start, start + len(found.encode()))


def unknown_table(name: str, topics: Collection[str]) -> str:
    """Return what to say about a table that is no topic."""
    close = get_close_matches(name, topics, n=1)
    lowered = [topic for topic in topics if topic.lower() == name.lower()]
    hint = lowered or close
    return f"did you mean {hint[0]}?" if hint else "`sparklog topics --list` lists the topics"


def _check_case(found: dict[str, TableName]) -> None:
    """Refuse two topics that DuckDB would take for one: it ignores the case of names.

    Raises:
        InvalidRequest: there are two.
    """
    seen: dict[str, str] = {}
    for name in found:
        other = seen.setdefault(name.lower(), name)
        if other != name:
            raise InvalidRequest(
                "SQL ignores the case of names, so one query cannot read both topics. "
                f"topics={other},{name}"
            )


def _edited(data: bytes, start: int, edits: Iterable[Edit]) -> str:
    """Return the text from `start` on with the edits, whose positions are the original ones."""
    parts = []
    at = start
    for edit in sorted(edits):
        parts += [data[at : edit.start], edit.text.encode()]
        at = edit.end
    return b"".join([*parts, data[at:]]).decode()


def _offset_columns(tokens: Iterable[Token]) -> Iterator[Token]:
    """Yield the words OFFSET that are columns."""
    before: Token | None = None
    for token in tokens:
        if token.is_word("offset") and not _ends_expression(before):
            yield token
        before = token


def _ends_expression(token: Token | None) -> bool:
    """Return True if a clause may follow, so that OFFSET is one."""
    if token is None or token.text == ".":
        return False
    if token.kind == "operator":
        return token.text in {")", "]", "}"}
    return token.kind != "keyword" or token.text.lower() in _ENDS_EXPRESSION


def _moments(tokens: Sequence[Token]) -> tuple[list[Edit], dict[str, TableName]]:
    """Return the tables at a moment, and the edits that give each one name."""
    edits: list[Edit] = []
    tables: dict[str, TableName] = {}
    for at, token in enumerate(tokens):
        match = _moment_at(tokens, at + 1)
        if match is None or token.kind not in {"identifier", "keyword", "string_const"}:
            continue
        moment, after = match
        topic = token.name
        what = (
            f"VERSION AS OF {moment.snapshot}"
            if moment.snapshot is not None
            else f"TIMESTAMP AS OF {_spelled(moment.timestamp_ms or 0)}"
        )
        name = f"{topic} {what}"
        known = tables.get(name, TableName(name, topic, moment))
        tables[name] = replace(known, formats=known.formats | _format_before(tokens, at))
        spelled = _quoted(name)
        if not _has_alias(tokens, after):
            spelled += f" AS {_quoted(topic)}"
        edits.append(Edit(token.start, tokens[after - 1].end, spelled))
    return edits, tables


def _format_before(tokens: Sequence[Token], at: int) -> frozenset[str]:
    """Return the schema that stands before a name: `json.orders`."""
    if at < 2 or tokens[at - 1].text != "." or not tokens[at - 2].is_word(*FORMATS):
        return frozenset()
    return frozenset({tokens[at - 2].text.lower()})


def _moment_at(tokens: Sequence[Token], at: int) -> tuple[Moment, int] | None:
    """Return the moment that begins at a token, and the token after it."""
    texts = [token.text.lower() for token in tokens[at : at + 6]]
    if texts[:3] in (["version", "as", "of"], ["timestamp", "as", "of"]):
        value = at + 3
        if value < len(tokens) and tokens[value].is_word("timestamp"):
            value += 1
        return _moment(texts[0], tokens, value), value + 1
    if texts[:2] == ["at", "("] and texts[2:3] in (["version"], ["timestamp"]):
        value = at + 4 if texts[3:4] == ["=>"] else at + 5
        if value < len(tokens) and tokens[value].is_word("timestamp"):
            value += 1
        if value + 1 < len(tokens) and tokens[value + 1].text == ")":
            return _moment(texts[2], tokens, value), value + 2
    return None


def _moment(kind: str, tokens: Sequence[Token], at: int) -> Moment:
    if at >= len(tokens) or tokens[at].kind not in {"string_const", "identifier"}:
        raise InvalidRequest(
            "write VERSION AS OF 'snapshot' or TIMESTAMP AS OF '2026-11-28 12:00:00+00:00'"
        )
    name = tokens[at].name
    if kind == "version":
        return Moment(snapshot=name)
    try:
        time = datetime.fromisoformat(name)
    except ValueError as error:
        raise InvalidRequest(f"TIMESTAMP AS OF takes a time, not {name!r}: {error}") from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    return Moment(timestamp_ms=int(time.timestamp() * 1000))


def _has_alias(tokens: Sequence[Token], at: int) -> bool:
    if at >= len(tokens):
        return False
    return tokens[at].is_word("as") or tokens[at].kind == "identifier"


def _spelled(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
