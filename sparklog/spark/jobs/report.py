"""Report: the results of an upkeep job (retention, compaction) at its end."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sparklog.core.counters import RequestCount, Snapshot, add_to
from sparklog.spark.jobs.job import FAILED
from sparklog.spark.jobs.partition_tasks import PartitionAnswer


@dataclass(frozen=True, slots=True)
class UpkeepReport:
    """The answers of all partitions, and what was done beside them."""

    summary: str
    """The first line."""
    seconds: float
    answers: tuple[PartitionAnswer, ...]
    totals: Mapping[str, Any]
    lines: tuple[str, ...] = ()
    """One for each partition where something was done."""
    problems: tuple[str, ...] = field(default=())
    """Findings for the operator, beside partitions that failed."""
    done_code: int | None = None
    """The exit code when no partition failed; None for that of any job that is done."""
    by_driver: Snapshot = field(default_factory=dict)
    """Requests of the driver to the store."""

    @property
    def printed(self) -> bool:
        """Return that standard output holds nothing yet."""
        return False

    @property
    def counted(self) -> Snapshot:
        """Return the requests of the driver and of all tasks, by kind and topic."""
        found = dict(self.by_driver)
        for one in self.answers:
            own = {(kind, one.topic): RequestCount(*n) for kind, n in one.requests.items()}
            add_to(found, own)
        return found

    @property
    def failures(self) -> list[PartitionAnswer]:
        """Return the partitions that failed."""
        return [answer for answer in self.answers if answer.error]

    @property
    def ended_by(self) -> int | None:
        """Return the exit code of a failure when a partition failed."""
        return FAILED if self.failures else self.done_code

    def to_text(self) -> str:
        """Return the report as lines."""
        failures = [f"error: {one.topic}-{one.partition}: {one.error}" for one in self.failures]
        problems = [f"warning: {problem}" for problem in self.problems]
        return "\n".join((self.summary, *self.lines, *problems, *failures))

    def to_json(self) -> str:
        """Return the report as one JSON object."""
        partitions = [
            {"topic": one.topic, "partition": one.partition, **one.result}
            | ({"error": one.error} if one.error else {})
            for one in self.answers
        ]
        document = {
            **self.totals,
            "seconds": round(self.seconds, 3),
            "failed": len(self.failures),
            "requests": requests_of(self.answers),
            "problems": list(self.problems),
            "partitions": partitions,
        }
        return json.dumps(document, separators=(",", ":"))


def requests_of(answers: Iterable[PartitionAnswer]) -> dict[str, int]:
    """Return the requests that the tasks made, by kind."""
    total: Counter[str] = Counter()
    for answer in answers:
        total.update({kind: count for kind, (count, _) in answer.requests.items()})
    return dict(sorted(total.items()))


def total_of(answers: Iterable[PartitionAnswer], name: str) -> int:
    """Return the sum of one field over all partitions that did not fail."""
    return sum(int(answer.result.get(name, 0)) for answer in answers)
