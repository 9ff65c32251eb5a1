"""The checker: a good history passes, and each anomaly is found in a bad one made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparklog.core.types import TopicPartition
from sparklog.testing.history import ANOMALIES, Poll, Send, SendOutcome, check, from_lines, to_lines

P0 = TopicPartition("t", 0)


def _send(value: int, offset: int | None, *, producer: str = "p", at_s: float = 0.0) -> Send:
    """Return an acknowledged send, or one of unknown outcome when there is no offset."""
    outcome = SendOutcome.UNKNOWN if offset is None else SendOutcome.OK
    return Send(producer, P0, value, value, at_s, at_s + 0.5, outcome, offset)


def _poll(*records: tuple[int, int], consumer: str = "c", final: bool = False) -> Poll:
    return Poll(consumer, P0, records[0][0] if records else 0, records, 50.0, final)


def _final(*records: tuple[int, int]) -> Poll:
    return _poll(*records, consumer="final", final=True)


GOOD: list[Send | Poll] = [
    _send(1, 0, at_s=0),
    _send(2, 1, at_s=1),
    _send(3, None, at_s=2),
    _send(4, 4, at_s=3),
    _send(5, None, at_s=4),
    _poll((0, 1), (1, 2)),
    _poll((3, 3), (4, 4)),
    _final((0, 1), (1, 2), (3, 3), (4, 4)),
]

BAD: dict[str, list[Send | Poll]] = {
    "inconsistent-offsets": [
        _send(1, None),
        _send(2, None),
        _poll((0, 1), consumer="a"),
        _poll((0, 2), consumer="b"),
    ],
    "duplicate": [_send(1, 0), _final((0, 1), (1, 1))],
    "lost-write": [_send(1, 0), _send(2, 1, at_s=1), _final((1, 2))],
    "unseen": [_send(1, 0), _send(2, 1, at_s=1), _final((0, 1))],
    "failed-read": [
        replace(_send(1, None), outcome=SendOutcome.FAILED),
        _final((0, 1)),
    ],
    "invented-read": [_send(1, 0), _final((0, 1), (1, 99))],
    "vanished-read": [_send(1, 0), _send(2, None), _poll((0, 1), (1, 2)), _final((0, 1))],
    "nonmonotonic-send": [_send(1, None), _send(2, None), _final((0, 2), (1, 1))],
    "real-time-order": [
        _send(1, 5, producer="a", at_s=0),
        _send(2, 3, producer="b", at_s=1),
        _final((3, 2), (5, 1)),
    ],
    "nonmonotonic-poll": [
        _send(1, 0),
        _send(2, 1, at_s=1),
        _poll((0, 1), (1, 2)),
        _poll((0, 1), (1, 2)),
        _final((0, 1), (1, 2)),
    ],
    "poll-skip": [
        _send(1, 0),
        _send(2, 1, at_s=1),
        _send(3, 2, at_s=2),
        _poll((0, 1)),
        _poll((2, 3)),
        _final((0, 1), (1, 2), (2, 3)),
    ],
}


def test_a_good_history_with_gaps_and_unknown_outcomes_passes() -> None:
    assert check(GOOD) == []


def test_every_anomaly_has_a_bad_history() -> None:
    assert set(BAD) == set(ANOMALIES)


@pytest.mark.parametrize("kind", ANOMALIES)
def test_history_checker_finds_exactly_the_anomaly(kind: str) -> None:
    found = check(BAD[kind])
    assert {anomaly.kind for anomaly in found} == {kind}
    assert {anomaly.partition for anomaly in found} == {P0}


def test_an_unread_write_that_was_not_acknowledged_is_no_loss() -> None:
    assert check([_send(1, None), _send(2, 0, at_s=1), _final((0, 2))]) == []


def test_weak_writes_may_be_lost_or_doubled() -> None:
    weak = replace(_send(1, 0), durable=False, idempotent=False)
    assert check([weak, _send(2, 1, at_s=1), _final((1, 2))]) == []
    assert check([weak, _final((0, 1), (1, 1))]) == []


def test_partitions_are_judged_apart() -> None:
    other = TopicPartition("t", 1)
    history: list[Send | Poll] = [
        *GOOD,
        *(replace(one, partition=other) for one in BAD["lost-write"]),
    ]
    assert [anomaly.partition for anomaly in check(history)] == [other]


def test_a_history_survives_being_written_down() -> None:
    history = GOOD + BAD["failed-read"]
    assert from_lines(to_lines(history)) == history
