from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from sparklog.cluster.log import open_log
from sparklog.spark.schedule import requests
from sparklog.spark.schedule.claims import ScheduleClaims
from sparklog.spark.schedule.cron import parse_cron
from sparklog.spark.schedule.history import (
    DONE,
    FAILED,
    HISTORY_TOPIC,
    REPAIRED,
    JobRun,
    KnownJob,
    is_led,
    key_of,
    write_history,
)
from sparklog.spark.schedule.listener import Listener
from sparklog.spark.schedule.requests import Word
from sparklog.spark.schedule.run import PoolSession, RunEnd
from sparklog.spark.schedule.runner import ScheduledJobs
from sparklog.spark.schedule.schedule import Schedule, ScheduledJob
from tests.cli.conftest import Cli
from tests.harness.waiting import eventually
from tests.interop.brokers import Brokers

RUN = JobRun(
    "a" * 32, "nightly", "retain", "schedule", 1_700_000_000_000, 1_700_000_001_000,
    1_700_000_003_500, "host:1", DONE, 0, 2500, message="expired 3 offsets",
    report={"expired_offsets": 3},
)  # fmt: skip
JOB = KnownJob("nightly", "retain", "30 2 * * *", "Europe/Berlin", ("--dry-run",), True)
SCHEDULE = '[jobs.weekly]\nkind = "verify"\ncron = "0 4 * * 0"\nenabled = false\n'


def keep(root: str, *records: JobRun | KnownJob) -> None:
    """Write history as an application would."""
    with open_log(root) as log:
        for record in records:
            write_history(log, record, patience_s=0)


def test_jobs_are_listed_with_their_last_and_next_runs(file_cli: Cli) -> None:
    keep(file_cli.root, JOB, replace(JOB, job="quiet", enabled=False), RUN)
    head, nightly, quiet = file_cli.ok("jobs", "--list").lines
    assert head.split() == ["JOB", "KIND", "CRON", "ZONE", "NEXT", "LAST", "OUTCOME"]
    assert nightly.split()[:8] == ["nightly", "retain", "30", "2", "*", "*", "*", "Europe/Berlin"]
    assert nightly.split()[8].endswith(("T00:30:00Z", "T01:30:00Z"))
    assert nightly.split()[9:] == ["2023-11-14T22:13:21Z", "done"]
    assert quiet.split()[8:] == ["disabled", "never", "-"]
    first, second = file_cli.ok("jobs", "--list", "--json").documents
    assert (first["job"], first["arguments"], first["enabled"]) == ("nightly", ["--dry-run"], True)
    assert first["next_ms"] > RUN.started_ms
    assert first["last_run"]["report"] == {"expired_offsets": 3}
    assert (second["next_ms"], second["last_run"]) == (None, None)


def test_schedule_without_an_application_is_listed_from_its_file(
    file_cli: Cli, tmp_path: Path
) -> None:
    (tmp_path / "jobs.toml").write_text(SCHEDULE)
    lines = file_cli.ok("jobs", "--list", "--file", str(tmp_path / "jobs.toml")).lines
    assert lines[1].split() == ["weekly", "verify", *["0", "4", "*", "*", "0"], "UTC", "disabled",
                                "never", "-"]  # fmt: skip
    empty = file_cli.ok("jobs", "--list")
    assert empty.lines == []
    assert "no jobs" in empty.errors
    (tmp_path / "jobs.toml").write_text(SCHEDULE + "when = 3\n")
    failed = file_cli("jobs", "--list", "--file", str(tmp_path / "jobs.toml"))
    assert failed.code == 1
    assert "table=jobs.weekly key=when" in failed.errors


def test_the_history_shows_the_newest_runs_first(file_cli: Cli) -> None:
    later = replace(
        RUN, run_id="b" * 32, started_ms=1_700_000_900_000, outcome=FAILED, exit_code=1,
        duration_ms=None, message="no such topic",
    )  # fmt: skip
    keep(file_cli.root, RUN, later, replace(RUN, run_id="c" * 32, job="weekly", started_ms=5))
    lines = file_cli.ok("jobs", "--history").lines
    assert lines[0].split() == ["STARTED", "JOB", "TRIGGER", "OUTCOME", "CODE", "TOOK", "MESSAGE"]
    assert [line.split()[1] for line in lines[1:]] == ["nightly", "nightly", "weekly"]
    assert lines[1].split(maxsplit=6)[3:] == ["failed", "1", "-", "no such topic"]
    assert lines[2].split(maxsplit=7)[3:] == ["done", "0", "2.5", "s", "expired 3 offsets"]
    only = file_cli.ok("jobs", "--history", "--job", "nightly", "--max", "1", "--json").documents
    assert [(one["type"], one["run_id"], one["exit_code"]) for one in only] == [
        ("run", "b" * 32, 1)
    ]
    never = file_cli.ok("jobs", "--history", "--job", "never")
    assert (never.lines, "no run is known" in never.errors) == ([], True)


def test_foreign_records_are_not_shown(file_cli: Cli) -> None:
    keep(file_cli.root, JOB, RUN)
    odd: list[dict[str, object]] = [
        {"run_id": 5},
        {"run_id": "x", "message": "\ud800"},
        {"started_ms": "now"},
    ]
    rows = {
        "key": [b"run/5", b"run/x", key_of(RUN), b"job/\xff"],
        "value": [*(json.dumps({**asdict(RUN), **one}).encode() for one in odd), b"{}"],
    }
    with open_log(file_cli.root) as log:
        log.partition(HISTORY_TOPIC, 0).append([pa.RecordBatch.from_pydict(rows)])
    assert len(file_cli.ok("jobs", "--list").lines) == 2
    assert [one["run_id"] for one in file_cli.ok("jobs", "--history", "--json").documents] == [
        RUN.run_id
    ]


def test_options_that_do_not_go_together_are_refused(file_cli: Cli) -> None:
    assert "required" in file_cli.misused("jobs")
    for option, action in (("--job", "--history"), ("--max", "--history"), ("--master", "--run")):
        said = file_cli.misused("jobs", "--list", option, "1")
        assert f"{option} does not go with --list, but with {action}" in said
    failed = file_cli("jobs", "--run", "nightly")
    assert failed.code == 1
    assert "no such job" in failed.errors
    words = ("jobs", "--run", "nightly", "--bootstrap-server", "localhost:1")
    assert "give --root" in file_cli.misused(*words)


def test_the_history_goes_through_brokers_where_they_lead_it(
    brokers: Brokers, wire_cli: Cli
) -> None:
    assert wire_cli.ok("jobs", "--list").lines == []
    keep(brokers.root, JOB, RUN)
    with open_log(brokers.root) as log:
        assert log.topic(HISTORY_TOPIC).partition_states[0].replicas
        eventually(
            lambda: log.refresh().topics[HISTORY_TOPIC].partition_states[0].leader >= 0,
            "somebody leads the history",
        )
    keep(brokers.root, replace(RUN, message="later"), replace(JOB, job="other"))
    by_brokers = eventually(
        lambda: wire_cli.ok("jobs", "--history", "--json").documents, "brokers know the topic"
    )
    by_storage = wire_cli.ok("jobs", "--history", "--json", "--root", brokers.root).documents
    assert [(one["run_id"], one["message"]) for one in by_brokers] == [(RUN.run_id, "later")]
    assert by_storage == by_brokers
    assert len(eventually(lambda: wire_cli.ok("jobs", "--list").lines, "likewise")) == 3


def test_run_by_hand_is_kept_for_every_outcome(file_cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text(
        '[jobs.hourly]\nkind = "retain"\ncron = "@hourly"\narguments = ["--topic", "nope"]\n'
    )
    # It fails before it needs Spark: there is no such topic.
    failed = file_cli("jobs", "--run", "hourly", "--file", str(path))
    assert failed.code == 1
    assert "error: no such topic" in failed.errors
    (one,) = file_cli.ok("jobs", "--history", "--json").documents
    assert (one["job"], one["trigger"], one["outcome"]) == ("hourly", "by hand", "failed")
    assert one["exit_code"] == 1
    assert one["message"].startswith("no such topic")
    assert one["duration_ms"] >= 0


class NoSession(PoolSession):
    """A stand-in for a job's session."""

    def __init__(self) -> None: ...

    def __call__(self, conf: Mapping[str, str]) -> Any:
        raise AssertionError("this job needs no Spark")

    def cancel(self) -> None:
        """Nothing goes on."""


class Runner(ScheduledJobs):
    """An application's jobs, whose places are taken when the test says so."""

    free = True

    def reserve(self, name: str, run_id: str) -> bool:
        return self.free and super().reserve(name, run_id)


class Ear(Listener):
    """A listener that states if it listens."""

    hears = False

    def handle(self, word: Word) -> None:
        self.hears = True
        super().handle(word)


def test_free_application_runs_the_requested_job(
    brokers: Brokers, wire_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = ScheduledJob("asked", "retain", parse_cron("0 4 1 1 *"), arguments=("--topic", "nope"))
    known = KnownJob.of(job, 0, "host:1")
    keep(brokers.root, known)
    asking = ("jobs", "--run", "asked", "--json", "--root", brokers.root)

    def body(*given: object) -> RunEnd:
        return RunEnd(REPAIRED, 3, "put right", {"mended": 1})

    with open_log(brokers.root) as log:
        looking = ScheduleClaims(log, "host:1", lambda event: None)
        schedule = Schedule("test", (job,))
        jobs = Runner(schedule, brokers.root, looking, lambda run: NoSession(), body=body)
        ear = Ear(log, "host:1", jobs)

        def hears() -> bool:
            keep(brokers.root, known)
            return ear.hears

        eventually(lambda: is_led(log.refresh().topics[HISTORY_TOPIC]), "a leader")
        jobs.start()
        ear.start()
        try:
            eventually(hears, "the application listens", every_s=0.5)
            monkeypatch.setattr(requests, "TAKEN_WITHIN_S", 300)
            monkeypatch.setattr(requests, "SETTLED_WITHIN_S", 300)
            done = wire_cli(*asking)
            jobs.free = False
            monkeypatch.setattr(requests, "TAKEN_WITHIN_S", 0.1)
            alone = wire_cli(*asking)
        finally:
            ear.stop(30)
            assert jobs.stop(30)
    assert (done.code, done.documents) == (3, [{"mended": 1}])
    assert "note: it runs at host:1" in done.errors
    assert "job asked: repaired: put right" in done.errors
    # Here it fails before it needs Spark: there is no such topic.
    assert alone.code == 1
    assert "it runs here" in alone.errors
    assert "error: no such topic" in alone.errors
    runs = wire_cli.ok("jobs", "--history", "--job", "asked", "--json").documents
    assert [(run["trigger"], run["outcome"]) for run in runs] == [
        ("by hand", "failed"), ("by hand", "repaired"),
    ]  # fmt: skip
    assert [run["application"] == "host:1" for run in runs] == [False, True]
