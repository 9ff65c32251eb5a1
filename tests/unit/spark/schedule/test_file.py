"""A schedule's file is checked whole, and what is wrong in it is named by file, table and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparklog.core.errors import InvalidConfig
from sparklog.spark.schedule.file import parse_schedule, read_schedule

CONF = Path(__file__).parents[4] / "conf"
GOOD = '[jobs.a]\nkind = "retain"\ncron = "@daily"\n'


def test_the_example_in_conf_runs_every_kind_of_upkeep() -> None:
    schedule = read_schedule(CONF / "jobs.toml")
    assert {job.kind for job in schedule.jobs} >= {"compact", "retain", "verify"}
    assert schedule.at_once == 1


def test_job_inherits_settings_of_the_scheduler_table() -> None:
    common = '[scheduler]\ntime_zone = "Europe/Berlin"\ncatch_up_hours = 3\nat_once = 2\n'
    own = 'time_zone = "UTC"\ncatch_up_hours = 0.5\nenabled = false\narguments = ["--dry-run"]\n'
    schedule = parse_schedule(f"{common}{GOOD}{GOOD.replace('.a', '.b')}{own}".encode(), "x")
    first, second = schedule.jobs
    assert (first.time_zone, first.catch_up_ms, first.enabled) == (
        "Europe/Berlin",
        10_800_000,
        True,
    )
    assert (second.time_zone, second.catch_up_ms, second.enabled) == ("UTC", 1_800_000, False)
    assert second.words("s3://b/log") == ["--root", "s3://b/log", "--dry-run"]
    assert schedule.at_once == 2


@pytest.mark.parametrize(
    ("text", "table", "key", "why"),
    [
        ("[job.a]\n", "", "job", "no such key"),
        ("jobs = 3\n", "", "jobs", "must be a table"),
        ("[jobs]\na = 1\n", "jobs", "a", "must be a table"),
        ("[scheduler]\nzone = 1\n", "scheduler", "zone", "no such key"),
        ("[scheduler]\nat_once = 0\n", "scheduler", "at_once", "from 1 to"),
        ("[scheduler]\nat_once = 1.5\n", "scheduler", "at_once", "from 1 to"),
        (GOOD + "when = 3\n", "jobs.a", "when", "no such key"),
        (GOOD.replace("retain", "retian"), "jobs.a", "kind", "choose from"),
        ('[jobs.a]\ncron = "@daily"\n', "jobs.a", "kind", "is missing"),
        ('[jobs.a]\nkind = "retain"\n', "jobs.a", "cron", "is missing"),
        (GOOD.replace("@daily", "61 * * * *"), "jobs.a", "cron", "61"),
        (GOOD.replace('"@daily"', "5"), "jobs.a", "cron", "text"),
        (GOOD + 'time_zone = "Nowhere"\n', "jobs.a", "time_zone", "no such time zone"),
        (GOOD + "enabled = 1\n", "jobs.a", "enabled", "true or false"),
        (GOOD + "catch_up_hours = -1\n", "jobs.a", "catch_up_hours", "at least 0"),
        (GOOD + "catch_up_hours = true\n", "jobs.a", "catch_up_hours", "at least 0"),
        (GOOD + "catch_up_hours = inf\n", "jobs.a", "catch_up_hours", "at least 0"),
        (GOOD + 'arguments = "--dry-run"\n', "jobs.a", "arguments", "list of texts"),
        (GOOD + 'arguments = ["--nope"]\n', "jobs.a", "arguments", "--nope"),
        (GOOD + 'arguments = ["--orphan-hours", "x"]\n', "jobs.a", "arguments", "whole number"),
        (GOOD + 'arguments = ["--root=s3://other"]\n', "jobs.a", "arguments", "takes no"),
        (GOOD + 'arguments = ["--metrics-file", "x"]\n', "jobs.a", "arguments", "takes no"),
        (GOOD + 'arguments = ["--help"]\n', "jobs.a", "arguments", "takes no"),
        (GOOD.replace(".a]", '."a/b"]'), "jobs.a/b", "kind", "letters"),
    ],
)
def test_invalid_schedule_names_the_fault(text: str, table: str, key: str, why: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse_schedule(text.encode(), "jobs.toml")
    said = str(caught.value)
    assert why in said
    assert "file=jobs.toml" in said
    assert f"key={key}" in said
    assert (f"table={table} " in said) if table else ("table=" not in said)


def test_invalid_toml_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text("[jobs.a\n")
    with pytest.raises(InvalidConfig, match=r"no TOML.*line 1.*file=.*jobs\.toml"):
        read_schedule(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidConfig, match="no TOML"):
        read_schedule(path)
