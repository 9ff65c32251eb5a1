"""QueryRuns: queries of SQL that run beside their page, with progress, cost and cancellation.

A run has a thread. It keeps at most `RESULT_BYTES_MAX` of its result, and `HELD_BYTES_MAX` of all
results are kept, the newest first. A run belongs to one session; no other session sees it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from typing import Final

import pyarrow as pa

from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.entropy import SYSTEM_ENTROPY, new_nonce
from sparklog.core.errors import ResourceNotFound, SparklogError, Unavailable
from sparklog.core.types import Closeable
from sparklog.log.segment.unread_batches import Unread
from sparklog.sql.engine import DecodeRules, Query, QueryLimits
from sparklog.sql.topics import BrokerTopics, RootTopics

RUNS_AT_ONCE: Final = 4
RUNS_KEPT: Final = 500
"""Of all sessions; without their results from `HELD_BYTES_MAX` on."""
RESULT_BYTES_MAX: Final = 16 << 20
HELD_BYTES_MAX: Final = 64 << 20
MEMORY_BYTES: Final = 256 << 20
"""Of DuckDB, for one run."""
THREADS: Final = 2
INTERRUPT_EVERY_S: Final = 0.1
RULES: Final = DecodeRules(strict=False, unread=Unread.PASS_OVER)
"""A field of a value that does not decode is null."""

QueriedTopics = RootTopics | BrokerTopics


@dataclass(frozen=True, slots=True)
class QueryCost:
    """The work of a query so far."""

    segments: int = 0
    """Segments of the scanned topics."""
    skipped: int = 0
    """Segments that bounds or the key index excluded."""
    read: int = 0
    records: int = 0
    """Records that were read, before the filter."""
    served: int = 0
    """Offsets that brokers serve, because no segment has them."""
    requests: int = 0
    """To the store, by this process meanwhile."""
    bytes: int = 0

    @property
    def share(self) -> float:
        """Return the part of the segments and served offsets that is done, 0 to 1."""
        wanted = self.segments + self.served
        if not wanted:
            return 0.0
        records = min(self.records, self.served) if not self.segments else 0
        return min(1.0, (self.skipped + self.read + records) / wanted)


def cost_of(query: Query) -> QueryCost:
    """Return the cost of a query that runs or has ended."""
    segments = skipped = read = records = served = 0
    for scan in list(query.scans.scans):
        for plan in scan.plans:
            segments += len(plan.entries) + plan.skipped
            skipped += plan.skipped
            served += plan.tail[1] - plan.tail[0]
        for done in list(scan.counts):
            skipped += done.excluded_by_key
            read += done.read
            records += done.rows
    spent = query.spent()
    return QueryCost(segments, skipped, read, records, served, spent.requests, spent.bytes)


@dataclass(slots=True)
class QueryRun:
    """One run. Its thread writes; pages read."""

    run_id: str
    session_id: str
    statement: str
    limits: QueryLimits
    topic: str
    """The topic whose records the rows are, or empty."""
    started_ms: int
    began_s: float
    state: str = "running"
    """`running`, `done`, `failed` or `cancelled`."""
    message: str = ""
    milliseconds: int = 0
    cost: QueryCost = field(default_factory=QueryCost)
    result: pa.Table | None = None
    rows: int = 0
    truncated: bool = False
    """True if the query has more rows than the result."""
    cancelled: bool = False
    query: Query | None = None
    ended: Event = field(default_factory=Event)

    def cancel(self) -> None:
        """Stop the query; its thread ends soon.

        DuckDB forgets an interrupt that comes between two of its statements. So a thread repeats it
        until the run has ended.
        """
        if not self.cancelled:
            self.cancelled = True
            Thread(target=self._interrupt, name="sparklog-cancel", daemon=True).start()

    def _interrupt(self) -> None:
        while not self.ended.is_set():
            query = self.query
            if query is not None:
                query.cancel()
            self.ended.wait(INTERRUPT_EVERY_S)

    def cost_now(self) -> QueryCost:
        """Return its cost up to now."""
        query = self.query
        return self.cost if query is None else cost_of(query)


class QueryRuns(Closeable):
    """The runs over one log, with the rights of its view. Thread-safe."""

    def __init__(
        self, open_topics: Callable[[], QueriedTopics], clock: Clock = SYSTEM_CLOCK
    ) -> None:
        """Read the topics that `open_topics` opens for each run."""
        self._open_topics = open_topics
        self._clock = clock
        self._runs: OrderedDict[str, QueryRun] = OrderedDict()
        self._lock = Lock()

    def close(self) -> None:
        """Cancel what runs."""
        with self._lock:
            runs = list(self._runs.values())
        for run in runs:
            run.cancel()

    def topics(self) -> QueriedTopics:
        """Open the topics for a query; the caller closes them."""
        return self._open_topics()

    def start(
        self, session_id: str, statement: str, limits: QueryLimits, topic: str = ""
    ) -> QueryRun:
        """Start a run. Raises Unavailable: too many run."""
        run = QueryRun(
            new_nonce(SYSTEM_ENTROPY), session_id, statement, limits, topic,
            self._clock.now_ms(), self._clock.monotonic_s(),
        )  # fmt: skip
        with self._lock:
            if sum(one.state == "running" for one in self._runs.values()) >= RUNS_AT_ONCE:
                raise Unavailable(
                    f"too many queries run; cancel one, or wait. queries_max={RUNS_AT_ONCE}"
                )
            self._runs[run.run_id] = run
            ended = [one.run_id for one in self._runs.values() if one.state != "running"]
            for run_id in ended[: max(0, len(self._runs) - RUNS_KEPT)]:
                del self._runs[run_id]
        Thread(target=self._run, args=(run,), name="sparklog-query", daemon=True).start()
        return run

    def find(self, session_id: str, run_id: str) -> QueryRun:
        """Return a run of this session. Raises ResourceNotFound."""
        with self._lock:
            found = self._runs.get(run_id)
        if found is None or found.session_id != session_id:
            raise ResourceNotFound("no such query is remembered; run it again")
        return found

    def history(self, session_id: str) -> list[QueryRun]:
        """Return the runs of this session, the newest first."""
        with self._lock:
            return [r for r in reversed(self._runs.values()) if r.session_id == session_id]

    def _run(self, run: QueryRun) -> None:
        try:
            with (
                self._open_topics() as topics,
                Query(topics, run.statement, run.limits, RULES) as query,
            ):
                run.query = query
                try:
                    self._collect(run, query)
                finally:
                    run.cost, run.query = cost_of(query), None
        except SparklogError as error:
            run.message = str(error)
            self._ended(run, "cancelled" if run.cancelled else "failed")
        except BaseException:
            run.message = "the query failed by a fault of the console; see its log"
            self._ended(run, "failed")
            raise
        else:
            self._ended(run, "done")

    def _collect(self, run: QueryRun, query: Query) -> None:
        kept: list[pa.RecordBatch] = []
        left = RESULT_BYTES_MAX
        for batch in query.batches():
            some = fitting(batch, left)
            kept.append(some)
            left -= some.nbytes
            run.rows += some.num_rows
            run.truncated = query.is_truncated
            if some.num_rows < batch.num_rows:
                run.truncated = True
                break
        run.truncated = run.truncated or query.is_truncated
        run.result = pa.Table.from_batches(kept)

    def _ended(self, run: QueryRun, state: str) -> None:
        run.milliseconds = round((self._clock.monotonic_s() - run.began_s) * 1000)
        run.ended.set()
        with self._lock:
            run.state = state
            held = 0
            for one in reversed(self._runs.values()):
                held += 0 if one.result is None else one.result.nbytes
                if held > HELD_BYTES_MAX:
                    one.result = None


def fitting(batch: pa.RecordBatch, bytes_max: int) -> pa.RecordBatch:
    """Return as many of the first rows as have `bytes_max`, in memory of their own."""
    rows = batch.num_rows
    while rows and batch.slice(0, rows).nbytes > bytes_max:
        rows //= 2
    if rows == batch.num_rows:
        return batch
    return batch.take(pa.array(range(rows), pa.int64()))
