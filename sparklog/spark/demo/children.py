"""The demo's processes: started in sessions of their own, talked to by lines, ended with the demo.

What a process reports is JSON, one object per line of its standard output. Everything else that it
writes goes to the log file: spark-submit mixes what Python says on standard error into the output.

Whatever way the demo ends, leaving the block ends every process that it started.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Lock, Thread
from typing import IO, Any

from sparklog.core.closeable import Closeable
from sparklog.core.errors import SparklogError

END_TIMEOUT_S = 10
SHOWN_LINES = 15

_OWN_LINE = re.compile(r"[\d,]+ records,|produced |consumed |  partition |error: ")


class ChildFailed(SparklogError):
    """A process of the demo failed; its last words are in the message."""


class Child:
    """One process: `documents` are what it reports, `lines` its whole standard output."""

    def __init__(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Start it; `tell` gets the lines that sparklog's jobs write for people."""
        self._words = words
        self._log = log
        self._tell = tell
        self._said: list[str] = []
        self._asked = False
        self._lock = Lock()
        self.process = subprocess.Popen(  # noqa: S603 - our own programs
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=dict(environment),
            # A terminal's Ctrl-C is for the demo, which then ends its processes in order.
            start_new_session=True,
        )
        assert self.process.stderr is not None
        self._listener = Thread(
            target=self._listen, args=(self.process.stderr,), name="stderr", daemon=True
        )
        self._listener.start()

    def lines(self) -> Iterator[str]:
        """Yield what it writes to standard output, until it ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:  # noqa: UP028 - delegating would close it with the generator
            yield line

    def documents(self) -> Iterator[dict[str, Any]]:
        """Yield what it reports, until it ends."""
        for line in self.lines():
            document = _document(line)
            if document is not None:
                yield document
            else:
                self._note(line)

    def document(self) -> dict[str, Any]:
        """Return what it reports next.

        Raises:
            ChildFailed: it has ended instead.
        """
        for document in self.documents():
            return document
        raise self._failure()

    def send(self, line: str) -> None:
        """Write a line to its standard input.

        Raises:
            ChildFailed: it has ended instead.
        """
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        except OSError:
            raise self._failure() from None

    def finish(self) -> list[dict[str, Any]]:
        """Wait for its end, and return what it has reported since it was last asked.

        Raises:
            ChildFailed: its exit code is not 0.
        """
        rest = list(self.documents())
        if self.process.wait() != 0:
            raise self._failure()
        return rest

    def end(self, timeout_s: float = END_TIMEOUT_S) -> None:
        """End it, gently first, with the processes that it started."""
        self.ask_to_end()
        if self._asked:
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                pass
            self._signal(signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    pass  # unsent input of a process that is gone
        self._listener.join(END_TIMEOUT_S)

    def ask_to_end(self) -> None:
        """Let it know that its time has come."""
        # One that has ended by itself is left alone: its number may be somebody else's by now.
        if not self._asked and self.process.poll() is None:
            self._asked = True
            self._signal(signal.SIGTERM)

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self.process.pid, number)
        except (ProcessLookupError, PermissionError):
            pass  # all of them have ended

    def _listen(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                self._note(line)

    def _note(self, line: str) -> None:
        with self._lock:
            with self._log.open("a") as log:
                log.write(line)
            self._said = [*self._said[-SHOWN_LINES:], line.rstrip()]
        if _OWN_LINE.match(line):
            self._tell(line.rstrip())

    def _failure(self) -> ChildFailed:
        code = self.process.wait()
        self._listener.join(END_TIMEOUT_S)
        errors = [line for line in self._said if line.startswith("error: ")]
        said = errors or self._said
        program = " ".join(self._words[:1])
        return ChildFailed(
            "a process of the demo failed:\n    "
            + "\n    ".join(said)
            + f"\n  see {self._log}. exit_code={code} program={program}"
        )


def _document(line: str) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


class Children(Closeable):
    """All processes of the demo."""

    def __init__(self, log: Path, end_timeout_s: float = END_TIMEOUT_S) -> None:
        """Keep what they say in `log`; give each that long to end by itself."""
        self._log = log
        self._end_timeout_s = end_timeout_s
        self._all: list[Child] = []

    def close(self) -> None:
        """End them all, the youngest first."""
        for child in self._all:
            child.ask_to_end()
        for child in reversed(self._all):
            child.end(self._end_timeout_s)

    def start(
        self,
        words: Sequence[str],
        environment: Mapping[str, str],
        tell: Callable[[str], None] = lambda line: None,
    ) -> Child:
        """Start a process."""
        child = Child(words, environment, self._log, tell)
        self._all.append(child)
        return child
