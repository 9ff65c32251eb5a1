"""Cron expressions mean what crontab(5) says."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sparklog.core.errors import InvalidRequest
from sparklog.spark.schedule.cron import Cron, parse_cron, zone_of

SATURDAY_EVENING = "2026-11-21T20:00"


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def times(cron: Cron, after: str, count: int) -> list[str]:
    """Return the next times in UTC, as `Sun 22 02:30`."""
    found, at_ms = [], ms(after)
    for _ in range(count):
        following = cron.next_ms(at_ms)
        assert following is not None
        at_ms = following
        found.append(datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%a %d %H:%M"))
    return found


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("30 2 * * *", ["Sun 22 02:30", "Mon 23 02:30"]),
        ("*/20 * * * *", ["Sat 21 20:20", "Sat 21 20:40"]),
        ("@hourly", ["Sat 21 21:00", "Sat 21 22:00"]),
        ("@Weekly", ["Sun 22 00:00", "Sun 29 00:00"]),
        ("0 3 * * 0", ["Sun 22 03:00", "Sun 29 03:00"]),
        ("0 3 * * 7", ["Sun 22 03:00", "Sun 29 03:00"]),
        ("0 3 * * 1-5", ["Mon 23 03:00", "Tue 24 03:00"]),
        ("0 3 * * fri-sun", ["Sun 22 03:00", "Fri 27 03:00"]),
        ("0 3 * * 5-7", ["Sun 22 03:00", "Fri 27 03:00"]),
        ("0 3 * * */3", ["Sun 22 03:00", "Wed 25 03:00"]),
        ("0 3 * * 3/3", ["Wed 25 03:00", "Sat 28 03:00"]),
        ("0 3 * * TUE,4", ["Tue 24 03:00", "Thu 26 03:00"]),
        # Either day is enough, but where one of the fields begins with a star.
        ("0 3 1 * mon", ["Mon 23 03:00", "Mon 30 03:00", "Tue 01 03:00"]),
        ("0 3 */7 * mon", ["Mon 22 03:00", "Mon 29 03:00"]),
        ("0 3 1 * */6", ["Sat 01 03:00", "Sun 01 03:00"]),
        ("0 3 29 2 *", ["Tue 29 03:00", "Sun 29 03:00"]),
    ],
)
def test_the_times_of_an_expression(expression: str, expected: list[str]) -> None:
    after = "2027-03-20T00:00" if "*/7" in expression else SATURDAY_EVENING
    assert times(parse_cron(expression), after, len(expected)) == expected


@pytest.mark.parametrize(
    "expression",
    ["", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *",
     "* * * * 8", "* * * * xyz", "* * * * 5-1", "* * * * */0", "*/0 * * * *", "a * * * *",
     "0 0 30 2 *", "@reboot", "1;2 * * * *", "* * * * 1-", "* * * * ,", "*-3 * * * *",
     "* * mon * *", "* * * sun *", "1-70 * * * *", "* * * * 9" * 99, "1" * 5000 + " * * * *"],
)  # fmt: skip
def test_invalid_expression_is_rejected(expression: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_cron(expression)


def test_hours_are_those_of_the_time_zone_summer_and_winter() -> None:
    berlin = parse_cron("30 4 * * *", zone_of("Europe/Berlin"))
    assert times(berlin, "2026-03-27T12:00", 2) == ["Sat 28 03:30", "Sun 29 02:30"]
    with pytest.raises(InvalidRequest, match="no such time zone"):
        zone_of("Europe/../etc")
    with pytest.raises(InvalidRequest, match="no such time zone"):
        zone_of("Mars/Base")


def test_changes_of_the_clock_are_those_of_cron() -> None:
    # At 02:00 on 29 March the clock shows 03:00, at 03:00 on 25 October it shows 02:00.
    daily = parse_cron("30 2 * * *", zone_of("Europe/Berlin"))
    assert times(daily, "2026-03-28T12:00", 2) == ["Sun 29 01:00", "Mon 30 00:30"]
    assert times(daily, "2026-10-24T12:00", 2) == ["Sun 25 00:30", "Mon 26 01:30"]
    both = parse_cron("0,30 2 * * *", zone_of("Europe/Berlin"))
    assert times(both, "2026-03-28T12:00", 2) == ["Sun 29 01:00", "Mon 30 00:00"]
    hourly = parse_cron("30 * * * *", zone_of("Europe/Berlin"))
    assert times(hourly, "2026-03-29T00:00", 2) == ["Sun 29 00:30", "Sun 29 01:30"]
    assert times(hourly, "2026-10-25T00:00", 3) == [
        "Sun 25 00:30", "Sun 25 01:30", "Sun 25 02:30"
    ]  # fmt: skip
    # The clock skips midnight: the day has its run, and so has the next one.
    beirut = parse_cron("0 0 * * *", zone_of("Asia/Beirut"))
    assert times(beirut, "2026-03-28T12:00", 2) == ["Sat 28 22:00", "Sun 29 21:00"]
    berlin = parse_cron("15 0 * * *", zone_of("Europe/Berlin"))
    assert times(berlin, "2026-03-28T12:00", 2) == ["Sat 28 23:15", "Sun 29 22:15"]


def test_the_newest_time_is_found_however_long_ago() -> None:
    yearly = parse_cron("0 0 1 1 *")
    now_ms = ms(SATURDAY_EVENING)
    assert yearly.newest_ms(0, now_ms) == ms("2026-01-01T00:00")
    assert yearly.newest_ms(ms("2026-01-01T00:00"), now_ms) is None
    assert yearly.newest_ms(ms("2026-01-01T00:00") - 1, now_ms) == ms("2026-01-01T00:00")
    assert parse_cron("* * * * *").newest_ms(0, now_ms) == now_ms
    assert parse_cron("* * * * *").newest_ms(0, now_ms - 1) == now_ms - 60_000
    assert yearly.newest_ms(now_ms, now_ms - 1) is None
