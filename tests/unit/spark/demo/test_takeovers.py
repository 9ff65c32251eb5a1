"""The demo's clock of take-overs: a dying leader's last words are not its successor's first."""

from __future__ import annotations

from sparklog.spark.demo.brokers import taken_over_at_s


def test_late_acknowledgement_of_the_dying_leader_is_no_take_over() -> None:
    acknowledged_s = [9.9, 10.02, 10.04, 11.0, 11.01, 11.2]
    assert taken_over_at_s(10.0, 11.1, acknowledged_s) == 11.0


def test_silence_from_the_kill_on_counts() -> None:
    assert taken_over_at_s(10.0, 10.5, [9.0, 10.7, 10.8, 14.0]) == 10.7


def test_pauses_outside_a_take_over_do_not_count() -> None:
    assert taken_over_at_s(10.0, 10.5, [1.0, 10.01, 10.4, 10.6, 20.0]) == 10.4
