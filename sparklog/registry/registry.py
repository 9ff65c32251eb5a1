"""SchemaRegistry: the state of `_schemas` in this process, and changes that any process may make.

A change reads the log to its end, decides, and appends its records at that end. If another process
appended first, it decides again. So no process leads, and none waits for another. Changes of
several threads share one append. Thread-safe.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from threading import Lock, RLock
from typing import Any, Final, TypeVar

from sparklog.core.errors import DataCorrupt, RecordTooLarge, SparklogError, Unavailable
from sparklog.registry import decisions
from sparklog.registry.decisions import ParsedOf, RegistryDecision, SchemaCandidate
from sparklog.registry.formats.parsed import ParsedSchema, parse_schema
from sparklog.registry.model import refusal
from sparklog.registry.model.refusal import RegistryRefused
from sparklog.registry.model.schema import SchemaContent
from sparklog.registry.records import RegistryRecord, decode_record, encode_record
from sparklog.registry.references import concrete, referred_texts
from sparklog.registry.schema_log import Row, SchemaLog
from sparklog.registry.state import RegistryState

logger = logging.getLogger(__name__)

LOST_RACES_MAX: Final = 1000
SHARED_MAX: Final = 100
"""Changes that share one append."""
PARSED_MAX: Final = 1000
"""Parsed schemas that are kept."""

Result = TypeVar("Result")
_ParsedKey = tuple[SchemaContent, tuple[tuple[str, str], ...]]
"""A schema, and the texts that it refers to."""
Decide = Callable[[RegistryState, ParsedOf], RegistryDecision]


class _SchemaChange:
    """A change that waits, and its outcome."""

    def __init__(self, decide: Decide) -> None:
        self.decide = decide
        self.settled = False
        self.result: Any = None
        self.error: Exception | None = None

    def settle(self, result: Any, error: Exception | None = None) -> None:
        self.settled, self.result, self.error = True, result, error


class SchemaRegistry:
    """A registry over a log."""

    def __init__(self, log: SchemaLog) -> None:
        """Use `log`; nothing is read before it is needed."""
        self._log = log
        self._state = RegistryState()
        self._end = 0
        self._lock = RLock()
        """Guards the state, its end and the parsed schemas; never held during a request."""
        self._reading = Lock()
        self._writer = Lock()
        self._queue: list[_SchemaChange] = []
        self._queue_lock = Lock()
        self._parsed: OrderedDict[_ParsedKey, ParsedSchema] = OrderedDict()

    def close(self) -> None:
        """Release the log's connections."""
        self._log.close()

    def query(self, asked: Callable[[RegistryState], Result], *, fresh: bool = True) -> Result:
        """Return what `asked` finds in the state.

        With `fresh` it sees each change that was acknowledged before, by any process. Cost: one
        request, or none without `fresh`.
        """
        if fresh:
            self._refresh()
        with self._lock:
            return asked(self._state)

    def content(self, context: str, schema_id: int) -> SchemaContent | None:
        """Return the schema of an id. Cost: no request for a known id; ids do not change."""
        found = self.query(lambda state: state.content(context, schema_id), fresh=False)
        return found or self.query(lambda state: state.content(context, schema_id))

    def content_of_guid(self, guid: str) -> SchemaContent | None:
        """Return the schema of a GUID. Cost: no request for one that is known."""

        def found(state: RegistryState) -> SchemaContent | None:
            place = state.place_of_guid(guid.lower())
            return None if place is None else state.content(*place)

        return self.query(found, fresh=False) or self.query(found)

    def contents_of_subject(self, subject: str) -> list[SchemaContent]:
        """Return the schemas of a subject's versions, in order. Cost: one request."""
        return self.query(lambda state: [one.content for one in state.versions(subject)])

    def parsed(self, content: SchemaContent) -> ParsedSchema:
        """Return a registered schema, parsed; the newest thousand are kept.

        Raises:
            RegistryRefused: it, or one that it refers to, is not valid.
        """
        with self._lock:
            texts = referred_texts(self._state, content)
            key = (content, tuple(texts.items()))
            found = self._parsed.get(key)
            if found is not None:
                self._parsed.move_to_end(key)
                return found
        made = parse_schema(content, texts)
        self._keep(key, made)
        return made

    def _keep(self, key: _ParsedKey, parsed: ParsedSchema) -> None:
        with self._lock:
            self._parsed[key] = parsed
            if len(self._parsed) > PARSED_MAX:
                self._parsed.popitem(last=False)

    def referred(self, content: SchemaContent) -> dict[str, str]:
        """Return the texts that a schema needs, by name. Raises RegistryRefused."""
        return self.query(lambda state: referred_texts(state, content), fresh=False)

    def candidate(
        self,
        subject: str,
        content: SchemaContent,
        *,
        normalize: bool = False,
        schema_id: int | None = None,
        version: int | None = None,
    ) -> SchemaCandidate:
        """Return a schema as one to register or to look up: parsed, with the text to store.

        Raises:
            RegistryRefused: no valid schema.
        """
        settled = self.query(lambda state: concrete(state, content))
        normalizes = self.query(lambda state: state.config(subject).get("normalize"), fresh=False)
        normalize = normalize or bool(normalizes)
        parsed = self.parsed(settled)
        stored = decisions.with_text(settled, parsed, normalize=normalize)
        self._keep((stored, tuple(self.referred(stored).items())), parsed)
        return SchemaCandidate(subject, stored, parsed, normalize, schema_id, version)

    def change(self, decide: Decide) -> Any:
        """Make a change, and return its result once every process sees it.

        Raises:
            RegistryRefused: the decision. OutcomeUnknown: read before trying again.
            SparklogError: the log cannot be read or written now; nothing was changed.
        """
        mine = _SchemaChange(decide)
        with self._queue_lock:
            self._queue.append(mine)
        with self._writer:
            while not mine.settled:
                with self._queue_lock:
                    some, self._queue = self._queue[:SHARED_MAX], self._queue[SHARED_MAX:]
                self._commit(some)
        if mine.error is not None:
            raise mine.error
        return mine.result

    def _commit(self, changes: list[_SchemaChange]) -> None:
        """Settle each of the changes, all by one append."""
        try:
            for _ in range(LOST_RACES_MAX):
                records, results, offset = self._decided(changes)
                if not records or self._appended(records, offset):
                    for change, result, error in results:
                        change.settle(result, error)
                    return
            raise Unavailable(f"lost too many races for the schemas. races={LOST_RACES_MAX}")
        except RecordTooLarge as error:
            self._fail(changes, RegistryRefused(refusal.SCHEMA_TOO_LARGE, str(error)))
        except Exception as error:
            self._fail(changes, error)

    def _fail(self, changes: list[_SchemaChange], error: Exception) -> None:
        """Fail all of the changes."""
        for change in changes:
            change.settle(None, error)

    def _decided(
        self, changes: list[_SchemaChange]
    ) -> tuple[list[RegistryRecord], list[tuple[_SchemaChange, Any, Exception | None]], int]:
        """Decide the changes one after the other, each on what those before it made.

        So a refusal, too, is final only once the records before it are in the log.
        """
        records: list[RegistryRecord] = []
        results: list[tuple[_SchemaChange, Any, Exception | None]] = []
        self._refresh()
        with self._lock:
            with self._state.trial():
                for change in changes:
                    try:
                        decision = change.decide(self._state, self.parsed)
                    except SparklogError as error:
                        results.append((change, None, error))
                        continue
                    for record in decision.records:
                        self._state.apply(record)
                    records += decision.records
                    results.append((change, decision.result, None))
            return records, results, self._end

    def _appended(self, records: list[RegistryRecord], offset: int) -> bool:
        end = self._log.append_at([encode_record(record) for record in records], offset)
        if end is None:
            return False
        with self._lock:
            if self._end == offset:  # else a reader has taken them in already
                for record in records:
                    self._state.apply(record)
                self._end = end
        return True

    def _refresh(self) -> None:
        """Apply the records that the log has now, as far as this process has not."""
        with self._reading:
            while True:
                with self._lock:
                    start = self._end
                end, rows = self._log.read(start)
                records = list(_decoded(rows))
                with self._lock:
                    if self._end != start:  # an append of ours has come between
                        continue
                    for record in records:
                        self._state.apply(record)
                    self._end = end
                    return


def _decoded(rows: Iterable[Row]) -> Iterator[RegistryRecord]:
    for key, value in rows:
        try:
            record = decode_record(key, value)
        except DataCorrupt as error:
            logger.warning("passing over a record: %s", error)
            continue
        if record is not None:
            yield record
