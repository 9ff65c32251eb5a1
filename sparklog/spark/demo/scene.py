"""What every step of the demo works with: its log, its folder, its Spark, who speaks and judges."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from sparklog.core.shipped import shipped_folder
from sparklog.spark.demo.checks import Checks
from sparklog.spark.demo.children import Child, Children
from sparklog.spark.demo.narrator import Narrator
from sparklog.spark.demo.submit import Submitter, shown
from sparklog.spark.root import ROOT_VARIABLE

NOTHING_YET = "0 records"


@dataclass(frozen=True, slots=True)
class Stage:
    """Where the demo plays."""

    root: str
    folder: Path
    """What it leaves behind: Delta table, Spark's log, the log itself unless that is elsewhere."""
    master: str

    @property
    def work(self) -> Path:
        """Return the folder that goes away at the end."""
        return self.folder / "work"

    @property
    def spark_log(self) -> Path:
        """Return the file that takes what Spark says."""
        return self.folder / "spark.log"

    @property
    def table(self) -> Path:
        """Return the Delta table."""
        return self.folder / "delays"


@dataclass(slots=True)
class Scene:
    """One performance."""

    stage: Stage
    narrator: Narrator
    children: Children
    checks: Checks
    environment: dict[str, str]
    """Of every process that is started; the S3 server's address is added to it."""
    s3_server: Child | None = None
    submitter: Submitter = field(init=False)

    def __post_init__(self) -> None:
        """Make the calls of spark-submit, and the log known to them."""
        self.environment[ROOT_VARIABLE] = self.stage.root
        self.submitter = Submitter(self.stage.master, self.stage.work, self.environment)

    def job(self, name: str, *arguments: str) -> Child:
        """Submit one of the project's jobs, and show the call."""
        self.narrator.command(shown(f"jobs/{name}", arguments))
        words = self.submitter.words(shipped_folder("jobs") / name, *arguments, "--json")
        return self.children.start(words, self.submitter.environ(), self._tell_progress)

    def _tell_progress(self, line: str) -> None:
        if not line.startswith(NOTHING_YET):
            self.narrator.tell(line)
