"""Waiting ends with what is seen, or says what never was."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.harness.waiting import eventually


def test_the_first_true_thing_is_returned() -> None:
    looks: Iterator[int] = itertools.count()
    assert eventually(lambda: next(looks) // 3, "a third look", every_s=0.001) == 1


def test_time_out_names_the_condition_and_the_last_value() -> None:
    looks: Iterator[list[int] | None] = iter([[], [], None])
    with pytest.raises(TimeoutError, match=r"a leader within_s=0.01 last_seen=None"):
        eventually(lambda: next(looks, None), "a leader", within_s=0.01, every_s=0.001)


def test_condition_is_checked_once_for_any_time_out() -> None:
    assert eventually(lambda: "seen", "anything", within_s=0) == "seen"


def test_an_exception_ends_the_wait() -> None:
    def look() -> bool:
        raise ConnectionError("gone")

    with pytest.raises(ConnectionError, match="gone"):
        eventually(look, "a connection")
