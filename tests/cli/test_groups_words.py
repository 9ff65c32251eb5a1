"""Input and output of `sparklog groups`, without brokers."""

from __future__ import annotations

import argparse

import pytest

from sparklog.cli.arguments import UsageError
from sparklog.cli.commands.group_reset import datetime_ms, duration_ms, parse_plan, plan_lines
from sparklog.cli.console.group_filter import parse_topic
from sparklog.cli.console.group_tables import (
    GroupProgressRow,
    member_lines,
    progress_lines,
    spelled_age,
    spelled_partitions,
)
from sparklog.client.values import CONSUMER, GroupDescription, GroupMember, ServingBroker
from sparklog.core.types import TopicPartition
from tests.cli.conftest import Cli

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("PT0S", 0),
        ("PT0.5S", 500),
        ("PT1H", HOUR_MS),
        ("P1DT2H3M4S", 26 * HOUR_MS + 184_000),
        ("P7D", 168 * HOUR_MS),
        ("-PT1M", -60_000),
        ("PT-1M", -60_000),
        ("pt1m", 60_000),
    ],
)
def test_durations_are_read_as_java_reads_them(text: str, expected_ms: int) -> None:
    assert duration_ms(text) == expected_ms


@pytest.mark.parametrize("text", ["", "1h", "P", "PT", "P1H", "PT1D", "P1DT", "PT1.S"])
def test_invalid_duration_is_rejected(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        duration_ms(text or " ")


def test_times_are_utc_by_default() -> None:
    assert datetime_ms("1970-01-01T01:00:00.250") == HOUR_MS + 250
    assert datetime_ms("1970-01-01T01:00:00+01:00") == 0
    assert datetime_ms("1970-01-02T00:00:00Z") == 24 * HOUR_MS
    with pytest.raises(argparse.ArgumentTypeError):
        datetime_ms("yesterday")


def test_topics_come_with_partitions_or_without() -> None:
    assert parse_topic("t") == ("t", None)
    assert parse_topic("t:0,12") == ("t", (0, 12))
    for wrong in (":1", "t:", "t:a", "t:1,", "t:-1"):
        with pytest.raises(UsageError):
            parse_topic(wrong)


def test_a_plan_is_read_as_it_was_exported() -> None:
    rows = [("g", TopicPartition("t,x", 0), 5), ("h", TopicPartition("t", 1), 0)]
    several = "\n".join(plan_lines(rows, one_group=False))
    assert parse_plan(several, ["g", "h"]) == {
        "g": {TopicPartition("t,x", 0): 5},
        "h": {TopicPartition("t", 1): 0},
    }
    alone = "\n".join(plan_lines(rows[:1], one_group=True))
    assert parse_plan(alone, ["other"]) == {"other": {TopicPartition("t,x", 0): 5}}
    for wrong in ("t,0\n", "t,x,5\n", "t,0,-1\n", "g,t,0,1,2\n"):
        with pytest.raises(UsageError):
            parse_plan(wrong, ["g"])
    with pytest.raises(UsageError):
        parse_plan("t,0,5\n", ["g", "h"])


def test_a_pattern_is_checked_without_brokers(file_cli: Cli) -> None:
    fine = file_cli.ok("groups", "--validate-regex", "orders-.*")
    assert fine.text == "The regular expression `orders-.*` is valid.\n"
    wrong = file_cli("groups", "--validate-regex", "(?=a)", "--json")
    assert wrong.code == 1
    assert wrong.documents[0]["valid"] is False


def test_ages_are_shown_in_two_units() -> None:
    assert [spelled_age(ms) for ms in (None, 0, 999, 61_000, 3 * 24 * HOUR_MS + HOUR_MS + 1)] == [
        None, "0ms", "999ms", "1m1s", "3d1h",
    ]  # fmt: skip


def test_unknown_value_is_shown_as_a_dash() -> None:
    row = GroupProgressRow("g", TopicPartition("t", 0), None, None, 7, None)
    assert row.lag is None
    (_, head, line) = progress_lines([row], verbose=True, in_time=True)
    assert head.split()[5:8] == ["LOG-END-OFFSET", "LAG", "LAG-TIME"]
    assert line.split() == ["g", "t", "0", "-", "-", "7", "-", "-", "-", "-", "-"]


def test_members_of_a_migrating_group_show_their_protocol() -> None:
    parts = (TopicPartition("t", 1), TopicPartition("t", 0), TopicPartition("s", 3))
    assert spelled_partitions(parts) == "s:3;t:0,1"
    members = tuple(
        GroupMember(f"m{n}", None, "c", "/h", parts[:n], parts, 3, upgraded=bool(n))
        for n in range(2)
    )
    at = ServingBroker(1, "h", 9092, None, False)
    group = GroupDescription("g", at, "Reconciling", CONSUMER, "range", members, 4, 4)
    lines = member_lines(group, verbose=True)
    assert [line.split()[-1] for line in lines[1:]] == ["UPGRADED", "false", "true"]
    assert lines[3].split()[4:] == ["1", "3", "t:1", "4", "s:3;t:0,1", "true"]
