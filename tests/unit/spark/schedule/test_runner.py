"""The alarm clock of scheduled jobs: each time rings once, for every change of the wall clock."""

from __future__ import annotations

from queue import SimpleQueue

from sparklog.core.clock import SYSTEM_CLOCK, ManualClock
from sparklog.spark.schedule.cron import parse_cron
from sparklog.spark.schedule.runner import CronTimer

HOUR_MS = 3_600_000
NOON_MS = 1_795_262_400_000


def test_alarms_ring_once_for_each_job_however_late() -> None:
    clock = ManualClock(NOON_MS)
    alarms = CronTimer(lambda name: None, clock)
    alarms.ring_by("hourly", parse_cron("0 * * * *"))
    alarms.ring_by("noon", parse_cron("0 12 * * *"))
    assert alarms.due(NOON_MS) == []
    assert alarms.due(NOON_MS + HOUR_MS) == ["hourly"]
    assert alarms.due(NOON_MS + HOUR_MS) == []
    assert alarms.due(NOON_MS + 30 * HOUR_MS) == ["hourly", "noon"]
    assert alarms.due(NOON_MS + 30 * HOUR_MS) == []


def test_alarm_rings_again_at_the_time_set_last() -> None:
    alarms = CronTimer(lambda name: None, ManualClock(NOON_MS))
    alarms.ring_by("hourly", parse_cron("0 * * * *"))
    alarms.ring_at("hourly", NOON_MS + 10)
    alarms.ring_at("hourly", NOON_MS + 20)
    assert alarms.due(NOON_MS + 10) == []
    assert alarms.due(NOON_MS + 20) == ["hourly"]
    alarms.ring_at("hourly", NOON_MS + HOUR_MS)
    assert alarms.due(NOON_MS + HOUR_MS) == ["hourly"]


def test_alarms_ring_as_planned_when_the_clock_was_set_back() -> None:
    alarms = CronTimer(lambda name: None, ManualClock(NOON_MS))
    alarms.ring_by("hourly", parse_cron("0 * * * *"))
    assert alarms.due(NOON_MS + 1000 * HOUR_MS) == ["hourly"]
    assert alarms.due(NOON_MS) == []
    assert alarms.due(NOON_MS + HOUR_MS) == ["hourly"]


def test_alarms_ring_in_a_thread_of_their_own_until_they_stop() -> None:
    rung: SimpleQueue[str] = SimpleQueue()
    alarms = CronTimer(rung.put)
    alarms.start()
    try:
        alarms.ring_at("soon", SYSTEM_CLOCK.now_ms() + 20)
        assert rung.get(timeout=30) == "soon"
    finally:
        alarms.stop()
