"""Listener: an application that runs a schedule listens for requests to run a job now.

The other side of `job_requests`. An application reserves a place for a run and appends to the
topic that it takes the request. It runs the job when its record comes back before any other
application's. A request that finds no place free is held for as long as its sender waits for an
answer.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from threading import Event, Thread
from typing import Final

from sparklog.client.consumer import Consumer
from sparklog.client.security import process_security
from sparklog.cluster.log import Log
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.errors import OffsetOutOfRange, SparklogError
from sparklog.spark.schedule.history import (
    PARTITION,
    JobRequest,
    decode,
    history_end,
    leading,
    write_history,
)
from sparklog.spark.schedule.requests import BEGUN_WITHIN_S, POLL_S, TAKEN_WITHIN_S, Word
from sparklog.spark.schedule.runner import ScheduledJobs

logger = logging.getLogger(__name__)

LOOK_AGAIN_S: Final = 5.0
"""While the topic has no leader, or its leader does not answer."""
BROKERS_EVERY_S: Final = 60.0
"""Interval of look-ups of the brokers' addresses: the client reports nothing when all have
moved.
"""
FETCH_WAIT_MS: Final = 5000
"""Records come at once all the same; an idle listener asks its broker this seldom."""
OLD_MS: Final = 5 * 60_000
"""The sender of such an old request has run the job, or gave up. Clocks of machines differ by
less.
"""
REMEMBERED: Final = 1000


class Listener:
    """Takes requests for an application, in a thread of its own."""

    def __init__(
        self, log: Log, application: str, runner: ScheduledJobs, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        """Follow the history of `log` as `application`; nothing happens before `start`."""
        self._log = log
        self._application = application
        self._runner = runner
        self._clock = clock
        self._next: int | None = None
        self._held: dict[str, tuple[JobRequest, float]] = {}
        """Requests that found no place yet, and until when (monotonic) their senders wait."""
        self._open: dict[str, tuple[JobRequest, float]] = {}
        """Requests that we said we take, before any taker's record has come, and until when."""
        self._settled: dict[str, None] = {}
        self._stopping = Event()
        self._thread = Thread(target=self._listen, name="sparklog-jobs-asked", daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """Take no more requests."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def handle(self, word: Word) -> None:
        """Do what a record of the topic asks for. Records come in their order.

        Raises:
            SparklogError: the word that we take a request cannot be written.
        """
        if not isinstance(word, JobRequest) or word.request_id in self._settled:
            return
        if word.taker:
            self._settle(word)
        elif word.request_id not in self._open and self._clock.now_ms() - word.asked_ms < OLD_MS:
            self._held[word.request_id] = word, self._clock.monotonic_s() + TAKEN_WITHIN_S
            self.attend()

    def attend(self) -> None:
        """Take held requests that find a place now; give up those whose senders no longer wait.

        Raises:
            SparklogError: as of `hear`.
        """
        now_s = self._clock.monotonic_s()
        for run_id in [one for one, (_, until_s) in self._open.items() if now_s >= until_s]:
            self._give_up(run_id)
        for run_id, (request, until_s) in list(self._held.items()):
            if now_s >= until_s:
                del self._held[run_id]
            elif self._runner.reserve(request.job, run_id):
                del self._held[run_id]
                # The sender waits so long for it to begin, if our record comes late.
                self._open[run_id] = request, now_s + BEGUN_WITHIN_S
                mine = replace(request, taker=self._application)
                write_history(self._log, mine, patience_s=TAKEN_WITHIN_S)

    def _settle(self, word: JobRequest) -> None:
        run_id = word.request_id
        self._settled[run_id] = None
        while len(self._settled) > REMEMBERED:
            del self._settled[next(iter(self._settled))]
        self._held.pop(run_id, None)
        if run_id not in self._open:
            return
        if word.taker == self._application:
            request, _ = self._open.pop(run_id)
            self._runner.run_asked(request.job, run_id)
        else:
            self._give_up(run_id)

    def _give_up(self, run_id: str) -> None:
        del self._open[run_id]
        self._runner.release(run_id)

    def _listen(self) -> None:
        while not self._stopping.is_set():
            try:
                self.attend()
                self._follow()
            except OffsetOutOfRange:
                self._next = None
            except SparklogError as error:
                logger.info("requests to run jobs are not heard now error=%s", error)
            except Exception as error:  # a defect must not make us deaf for good
                logger.warning("a request to run a job has failed error=%s", error)
            self._stopping.wait(LOOK_AGAIN_S)

    def _follow(self) -> None:
        """Handle records as they come, until the brokers have other addresses."""
        addresses = leading(self._log.refresh())
        if not addresses:
            return
        if self._next is None:
            self._next = history_end(addresses)
        settings: dict[str, str | int] = {
            **process_security().given,
            "fetch.wait.max.ms": FETCH_WAIT_MS,
        }
        with Consumer(addresses, settings=settings) as consumer:
            consumer.assign({PARTITION: self._next})
            look_s = self._clock.monotonic_s() + BROKERS_EVERY_S
            while not self._stopping.is_set():
                for record in consumer.poll(timeout_s=POLL_S):
                    self._next = record.offset + 1
                    self.handle(decode(record.key, record.value))
                self.attend()
                if self._clock.monotonic_s() >= look_s:
                    if leading(self._log.refresh(probing=True)) != addresses:
                        return
                    look_s = self._clock.monotonic_s() + BROKERS_EVERY_S
