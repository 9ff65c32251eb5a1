"""Asking the applications that serve a log to run a job now: `sparklog jobs --run`.

A request is a record of the history's topic, and so is the word of whoever takes it. The first such
word in the order of the topic counts: so one application runs the job, or whoever asked does, who
after a while takes the request back in the same way. Only topics that brokers lead are listened to:
otherwise nobody would hear of a record without asking the storage again and again.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Event, Thread
from typing import Final

from sparklog.client.consumer import Consumer
from sparklog.client.settings import Settings
from sparklog.client.values import LATEST
from sparklog.cluster.open import Log
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.errors import (
    NotServing,
    OffsetOutOfRange,
    OutcomeUnknown,
    SparklogError,
    Unavailable,
)
from sparklog.spark.job_history import HISTORY_TOPIC, JobRequest, JobRun, KnownJob, decode
from sparklog.spark.job_history_log import PARTITION, is_led, write_history
from sparklog.spark.leaders import registered
from sparklog.spark.schedule import SILENT_MS

logger = logging.getLogger(__name__)

TAKEN_WITHIN_S: Final = 8.0
"""An application that is free answers in a fraction of this."""
SETTLED_WITHIN_S: Final = 10.0
BEGUN_WITHIN_MS: Final = 60_000
POLL_S: Final = 0.5
LOOK_AGAIN_S: Final = 5.0
"""While nobody leads the topic, or its leader does not answer."""
FETCH_WAIT_MS: Final = 5000
"""Records come at once all the same; an idle listener asks its broker this seldom."""
REMEMBERED: Final = 1000

Word = JobRun | KnownJob | JobRequest | None


class Listener:
    """Takes requests for an application, in a thread of its own."""

    def __init__(
        self,
        log: Log,
        application: str,
        may_take: Callable[[str], bool],
        taken: Callable[[str, str], None],
    ) -> None:
        """Listen for `application`; nothing happens before `start`.

        Args:
            log: whose history to follow.
            application: who takes requests.
            may_take: says whether a job of that name can begin now.
            taken: is told a job's name and the id of its run, which is ours now.
        """
        self._log = log
        self._application = application
        self._may_take = may_take
        self._taken = taken
        self._next: int | None = None
        self._open: set[str] = set()
        """Requests that we said we take, before anybody's word was heard."""
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

    def hear(self, word: Word) -> None:
        """Do what a record of the topic asks for. Records come in their order.

        Raises:
            SparklogError: the word that we take a request cannot be written.
        """
        if not isinstance(word, JobRequest) or word.request_id in self._settled:
            return
        if word.taker:
            self._settled[word.request_id] = None
            while len(self._settled) > REMEMBERED:
                del self._settled[next(iter(self._settled))]
            ours = word.request_id in self._open and word.taker == self._application
            self._open.discard(word.request_id)
            if ours:
                self._taken(word.job, word.request_id)
        elif word.request_id not in self._open and self._may_take(word.job):
            self._open.add(word.request_id)
            mine = replace(word, taker=self._application)
            write_history(self._log, mine, patience_s=TAKEN_WITHIN_S)

    def _listen(self) -> None:
        while not self._stopping.is_set():
            try:
                self._follow()
            except OffsetOutOfRange:
                self._next = None
            except SparklogError as error:
                logger.info("requests to run jobs are not heard now error=%s", error)
            self._stopping.wait(LOOK_AGAIN_S)

    def _follow(self) -> None:
        start = LATEST if self._next is None else self._next
        seldom = {"fetch.wait.max.ms": FETCH_WAIT_MS}
        with _consumer(self._log, start, seldom) as consumer:
            while consumer is not None and not self._stopping.is_set():
                for record in consumer.poll(timeout_s=POLL_S):
                    self._next = record.offset + 1
                    self.hear(decode(record.key, record.value))


@dataclass(slots=True)
class Asking:
    """One request, from whoever asks."""

    log: Log
    request: JobRequest
    say: Callable[[str], None]
    clock: Clock = SYSTEM_CLOCK
    _words: list[Word] = field(default_factory=list)

    def run(self) -> JobRun | None:
        """Have a job run, and return the run when it has ended; None if nobody takes it.

        Raises:
            Unavailable: it was taken, and then nothing was heard of it for long.
            SparklogError: what becomes of it cannot be read.
        """
        with _consumer(self.log, LATEST) as consumer:
            if consumer is None:
                return None
            try:
                taker = self._asked(consumer)
            except (NotServing, OutcomeUnknown, Unavailable):
                return None  # the leader is going, and perhaps the application with it
            if taker in (None, self.request.asker):
                return None
            self.say(f"note: it runs at {taker}; to end this command does not end the run")
            return self._ended(consumer)

    def _asked(self, consumer: Consumer) -> str | None:
        """Return who runs the job: an application, or the asker; None if that is not known."""
        self._await_end(consumer)
        write_history(self.log, self.request, patience_s=SETTLED_WITHIN_S)
        taker = self._taker(consumer, TAKEN_WITHIN_S)
        if taker is not None:
            return taker
        back = replace(self.request, taker=self.request.asker)
        write_history(self.log, back, patience_s=SETTLED_WITHIN_S)
        return self._taker(consumer, SETTLED_WITHIN_S)

    def _await_end(self, consumer: Consumer) -> None:
        """Fix where reading begins: at the end as it is now."""
        deadline_s = self.clock.monotonic_s() + SETTLED_WITHIN_S
        while PARTITION not in consumer.ends_reached:
            if self.clock.monotonic_s() > deadline_s:
                raise Unavailable(f"the leader of a topic does not answer. topic={HISTORY_TOPIC}")
            self._poll(consumer)

    def _taker(self, consumer: Consumer, within_s: float) -> str | None:
        """Return whose word came first, None if nobody's has come."""
        deadline_s = self.clock.monotonic_s() + within_s
        while self.clock.monotonic_s() < deadline_s:
            self._poll(consumer)
            for at, word in enumerate(self._words):
                if isinstance(word, JobRequest) and word.taker:
                    del self._words[: at + 1]
                    return word.taker
        return None

    def _ended(self, consumer: Consumer) -> JobRun:
        heard_ms, silent_ms, said = self.clock.now_ms(), BEGUN_WITHIN_MS, ""
        while self.clock.now_ms() - heard_ms < silent_ms:
            for word in self._words:
                if not isinstance(word, JobRun):
                    continue
                if word.ended:
                    return word
                heard_ms, silent_ms = self.clock.now_ms(), SILENT_MS
                if word.message not in ("", said):
                    said = word.message
                    self.say(said)
            self._words.clear()
            self._poll(consumer)
        raise Unavailable(
            "an application took the job, and is not heard of any more; see `sparklog jobs "
            f"--history`. job={self.request.job} run_id={self.request.request_id}"
        )

    def _poll(self, consumer: Consumer) -> None:
        for record in consumer.poll(timeout_s=POLL_S):
            word = decode(record.key, record.value)
            ids = getattr(word, "request_id", None), getattr(word, "run_id", None)
            if self.request.request_id in ids:
                self._words.append(word)


@contextmanager
def _consumer(log: Log, start: int, settings: Settings | None = None) -> Iterator[Consumer | None]:
    """Read the history from an offset on; None if no broker leads it."""
    image = log.refresh()
    topic, addresses = image.topics.get(HISTORY_TOPIC), registered(image)
    if topic is None or not addresses or not is_led(topic):
        yield None
        return
    with Consumer(addresses, settings=settings) as consumer:
        consumer.assign({PARTITION: start})
        yield consumer


def application_name() -> str:
    """Return who runs a job: the machine and the process."""
    return f"{socket.gethostname()}:{os.getpid()}"
