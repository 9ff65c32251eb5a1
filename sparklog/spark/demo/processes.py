"""The demo's processes: started in sessions of their own, talked to by lines, ended with the demo.

A process reports as JSON, one object per line of its standard output. Everything else that it
writes goes to the log file: spark-submit mixes what Python says on standard error into the output.

However the demo ends, leaving the block ends every process that it started.

The demo calls the spark-submit that belongs to this Python, quietly, on few cores.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Thread
from typing import IO, Any

from sparklog.core.bounded_json import parse_json
from sparklog.core.errors import SparklogError
from sparklog.core.types import Closeable
from sparklog.spark.jobs.session import QUICK_JVM

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
        # One that has ended by itself is left alone: its number may be another process's by now.
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
        found = parse_json(line, "line of a process")
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


SHOWN_WORD_MAX = 64

# Spark logs to a file: on the console is what the demo prints.
_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {log}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""


@dataclass(frozen=True, slots=True)
class Submitter:
    """Builds command lines of spark-submit and their environment."""

    master: str
    work: Path
    """A folder for temporary files."""
    environment: Mapping[str, str]

    def prepare(self, log: Path) -> None:
        """Write what every call needs."""
        (self.work / "tmp").mkdir(parents=True)
        self._logging.write_text(_LOGGING.format(log=log))

    @property
    def _logging(self) -> Path:
        return self.work / "log4j2.properties"

    def environ(self) -> dict[str, str]:
        """Return the environment of a call."""
        return {
            **self.environment,
            "SPARK_HOME": str(_pyspark_folder()),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LOCAL_DIRS": str(self.work / "tmp"),
        }

    def words(self, program: Path, *arguments: str, master: str | None = None) -> list[str]:
        """Return the command line that submits `program`, to another master if one is given."""
        submit = _pyspark_folder() / "bin" / "spark-submit"
        return [str(submit), *self._options({}, master), str(program), *arguments]

    def driver(
        self, program: Path, *arguments: str, conf: Mapping[str, str]
    ) -> tuple[list[str], dict[str, str]]:
        """Return the command line and the environment of a Python driver that starts Spark itself.

        Unlike one that spark-submit starts, it has a standard input.
        """
        options = shlex.join([*self._options(conf), "pyspark-shell"])
        environment = {**self.environ(), "PYSPARK_SUBMIT_ARGS": options}
        return [sys.executable, str(program), *arguments], environment

    def _options(self, more: Mapping[str, str], master: str | None = None) -> list[str]:
        temporary = f"-Djava.io.tmpdir={shlex.quote(str(self.work / 'tmp'))}"
        conf = {
            "spark.ui.enabled": "false",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": (self.work / "warehouse").as_uri(),
            "spark.driver.memory": "1g",
            # A minute's work is over before the optimizing compiler has paid for itself.
            "spark.driver.extraJavaOptions": f"{QUICK_JVM} {temporary} "
            f"-Dlog4j2.configurationFile={self._logging.as_uri()}",
            # Java's own, too: what is killed here leaves libraries and folders there.
            "spark.executor.defaultJavaOptions": temporary,
            **more,
        }
        pairs = [word for key, value in conf.items() for word in ("--conf", f"{key}={value}")]
        return ["--master", master or self.master, *pairs]


def shown(program: str, arguments: Sequence[str]) -> str:
    """Return a call as a person would type it, without the demo's own settings."""
    here = f"{Path.cwd()}/"
    words = [_quoted(word.removeprefix(here)) for word in arguments]
    lines, line = [], f"spark-submit {program}"
    for word in words:
        if word.startswith("--") and len(line) + len(word) > 72:
            lines.append(line + " \\")
            line = "    " + word
        else:
            line += " " + word
    return "\n".join((*lines, line))


def _quoted(word: str) -> str:
    if len(word) > SHOWN_WORD_MAX and " " in word:
        word = word[: SHOWN_WORD_MAX - 1] + "…"
    return f'"{word}"' if set(word) & set(" *()$'") else word


def _pyspark_folder() -> Path:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None, "the Spark room needs pyspark"
    assert spec.origin is not None, "pyspark is no namespace package"
    return Path(spec.origin).parent
