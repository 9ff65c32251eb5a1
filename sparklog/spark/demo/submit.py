"""How the demo calls spark-submit: the one that belongs to this Python, quietly, on few cores."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sparklog.spark.jvm import QUICK_JVM

SHOWN_WORD_MAX = 64

# What Spark logs goes to a file: on the console is what the demo tells.
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
