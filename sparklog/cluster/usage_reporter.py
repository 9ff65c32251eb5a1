"""UsageReporter: leaves reports of a process's requests to the store of a log.

A report costs one put. A process reports at its end. While it works, it reports ever less often,
down to four times an hour, and at most every 45 seconds when it pauses. So the bill lacks at most
the last quarter of an hour of a process that is killed.

A process that may create nothing under `usage/` is not on the bill. Its work goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import Final

from sparklog.cluster.log import Log
from sparklog.cluster.usage_reports import (
    UsageReport,
    encode_usage,
    program_name,
    put_report,
    usage_day,
)
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.counters import RequestCount, Snapshot, add_to, diff
from sparklog.core.entropy import SYSTEM_ENTROPY, Entropy, new_nonce
from sparklog.core.errors import SparklogError
from sparklog.log.effects import run
from sparklog.log.layout import usage_key

FIRST_S: Final = 15.0
"""A process reports first after this time, and then after twice as long each time."""
PAUSE_S: Final = 45.0
INTERVAL_MAX_S: Final = 900.0
TICKS: Final = 3
"""Looks at the counts in the first interval. A process pauses if two looks show the same counts."""
END_WAIT_S: Final = 5.0
"""A process waits this long for its last report."""

logger = logging.getLogger("sparklog.usage")


class UsageReporter:
    """Reports the requests of one log's store. Thread-safe; for one process."""

    def __init__(
        self,
        log: Log,
        program: str,
        *,
        counted: Snapshot | None = None,
        first_s: float = FIRST_S,
        clock: Clock = SYSTEM_CLOCK,
        entropy: Entropy = SYSTEM_ENTROPY,
    ) -> None:
        """Report nothing yet; the first report has the log's requests up to then.

        Args:
            log: whose requests count.
            program: its name on the bill.
            counted: more requests of the program that others counted, such as the tasks of a job.
            first_s: seconds until the first report, if the process lives that long.
            clock: for the day of a report.
            entropy: for the names of reports.
        """
        self._log = log
        self._program = program_name(program)
        self._counted = dict(counted or {})
        self._first_s = first_s
        self._clock = clock
        self._nonce = new_nonce(entropy)
        self._sequence = 0
        self._reported: Snapshot = {}
        self._pending: tuple[str, bytes, Snapshot] | None = None
        """Name and bytes of a report whose put has not succeeded yet, and what it counts up to."""
        self._lock = Lock()
        self._ended = Event()

    def start(self) -> None:
        """Report from a thread from now on, until `end`."""
        Thread(target=self._keep, name="sparklog-usage", daemon=True).start()

    def report(self) -> None:
        """Report the requests since the last report, if there were any. One put.

        Raises:
            SparklogError: the store refuses the report, or does not respond. The next call tries
                the same report again.
        """
        with self._lock:
            if self._pending is None:
                self._pending = self._next()
            if self._pending is None:
                return
            key, data, counted = self._pending
            run(put_report(key, data), self._log.store)
            self._pending, self._reported = None, counted
            self._sequence += 1

    def end(self, wait_s: float = END_WAIT_S) -> None:
        """Report the last requests, and no more after that. Waits a bounded time for the store."""
        if self._ended.is_set():
            return
        self._ended.set()
        if self._unreported() or self._pending is not None:
            last = Thread(target=self._try, name="sparklog-usage-end", daemon=True)
            last.start()
            last.join(wait_s)

    def _next(self) -> tuple[str, bytes, Snapshot] | None:
        if not self._unreported() or not _has_log(self._now()):
            return None
        self._log.store.check_puts()  # the report has its requests, too
        counted = self._now()
        add_to(counted, {("put", ""): RequestCount(1, 0)})  # the report's own
        found = diff(self._reported, counted)
        day = usage_day(self._clock.now_ms())
        data = encode_usage(UsageReport({self._program: found}))
        return usage_key(day, self._nonce, self._sequence), data, counted

    def _now(self) -> dict[tuple[str, str], RequestCount]:
        now = dict(self._counted)
        add_to(now, self._log.requests())
        return now

    def _unreported(self) -> int:
        changes = diff(self._reported, self._now())
        return sum(count.requests for count in changes.values())

    def _try(self) -> None:
        try:
            self.report()
        except (SparklogError, OSError, RuntimeError) as error:  # RuntimeError: the log was closed
            logger.info(
                "the bill lacks requests of this program. program=%s requests=%d problem=%s",
                self._program,
                self._unreported(),
                error,
            )

    def _keep(self) -> None:
        tick_s = self._first_s / TICKS
        interval_s, waited_s, last = self._first_s, 0.0, 0
        while not self._ended.wait(tick_s):
            waited_s += tick_s
            count = self._unreported()
            pauses = count == last and waited_s >= min(interval_s, PAUSE_S)
            if count and (pauses or waited_s >= interval_s):
                self._try()
                interval_s, waited_s = min(2 * interval_s, INTERVAL_MAX_S), 0.0
                count = self._unreported()
            last = count


def _has_log(counts: Snapshot) -> bool:
    """Return False if nothing was found under the root: it may be a mistyped one."""
    return any(
        kind == "put" or (kind == "get" and count.bytes) for (kind, _), count in counts.items()
    )


@contextmanager
def reported_usage(log: Log, program: str) -> Iterator[None]:
    """Report a log's requests while the body runs, and at its end.

    Args:
        log: whose requests count, also those from before.
        program: its name on the bill.
    """
    reporter = UsageReporter(log, program)
    reporter.start()
    try:
        yield
    finally:
        reporter.end()
