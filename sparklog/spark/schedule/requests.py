"""Job requests: `sparklog jobs --run` asks the applications that serve a log to run a job now.

A request is a record of the history's topic, and so is the answer of the application that takes it
(`listener`). The first such answer in the order of the topic counts. So one application runs the
job, or the sender does, which after a while takes the request back in the same way. Applications
listen only to topics that brokers lead: otherwise each would have to poll the storage for records.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

from sparklog.client.consumer import Consumer
from sparklog.client.security import process_security
from sparklog.cluster.log import Log
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.errors import Unavailable
from sparklog.spark.schedule.history import (
    MAY_PASS,
    PARTITION,
    JobRequest,
    JobRun,
    KnownJob,
    decode,
    history_end,
    key_of,
    leading,
    run_key,
    write_history,
)
from sparklog.spark.schedule.schedule import SILENT_MS

TAKEN_WITHIN_S: Final = 8.0
"""An application that is free answers in a fraction of this."""
SETTLED_WITHIN_S: Final = 10.0
BEGUN_WITHIN_S: Final = 60.0
SILENT_S: Final = SILENT_MS / 1000
POLL_S: Final = 0.5

Word = JobRun | KnownJob | JobRequest | None


@dataclass(slots=True)
class JobRequests:
    """One request, on its sender's side."""

    log: Log
    request: JobRequest
    say: Callable[[str], None]
    clock: Clock = SYSTEM_CLOCK
    _words: list[Word] = field(default_factory=list)

    def run(self) -> JobRun | None:
        """Have a job run, and return the run when it has ended; None if no application takes it.

        Raises:
            Unavailable: it was taken, and then no record of it came for long. SparklogError: what
            becomes of it cannot be read.
        """
        addresses = leading(self.log.refresh())
        if not addresses:
            return None
        with Consumer(addresses, settings=process_security().given) as consumer:
            try:
                taker = self._asked(addresses, consumer)
            except MAY_PASS:
                return None  # the leader is going, and perhaps the application with it
            if taker in (None, self.request.asker):
                return None
            self.say(f"note: it runs at {taker}; to end this command does not end the run")
            return self._ended(consumer)

    def _asked(self, addresses: str, consumer: Consumer) -> str | None:
        """Return who runs the job: an application, or the asker; None if that is not known."""
        consumer.assign({PARTITION: history_end(addresses)})
        write_history(self.log, self.request, patience_s=SETTLED_WITHIN_S)
        taker = self._taker(consumer, TAKEN_WITHIN_S)
        if taker is not None:
            return taker
        back = replace(self.request, taker=self.request.asker)
        write_history(self.log, back, patience_s=SETTLED_WITHIN_S)
        return self._taker(consumer, SETTLED_WITHIN_S)

    def _taker(self, consumer: Consumer, within_s: float) -> str | None:
        """Return the application whose answer came first, None if none has come."""
        deadline_s = self.clock.monotonic_s() + within_s
        while self.clock.monotonic_s() < deadline_s:
            self._poll(consumer)
            for at, word in enumerate(self._words):
                if isinstance(word, JobRequest) and word.taker:
                    del self._words[: at + 1]
                    return word.taker
        return None

    def _ended(self, consumer: Consumer) -> JobRun:
        since_s, silent_s, said = self.clock.monotonic_s(), BEGUN_WITHIN_S, ""
        while self.clock.monotonic_s() - since_s < silent_s:
            for word in self._words:
                if not isinstance(word, JobRun):
                    continue
                if word.ended:
                    return word
                since_s, silent_s = self.clock.monotonic_s(), SILENT_S
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
        ours = (key_of(self.request), run_key(self.request.request_id))
        for record in consumer.poll(timeout_s=POLL_S):
            if record.key in ours:
                self._words.append(decode(record.key, record.value))


def application_name() -> str:
    """Return who runs a job: the machine and the process."""
    return f"{socket.gethostname()}:{os.getpid()}"
