"""Upkeep makes way for all else by whatever means the system grants."""

from __future__ import annotations

import os
import threading

import pytest

from sparklog.spark.low_priority import NICEST, at_low_priority, gave_way


def test_where_the_idle_class_is_refused_upkeep_is_as_nice_as_can_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(*given: object) -> None:
        raise PermissionError("as a sandbox says")

    def niceness() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    monkeypatch.setattr(os, "sched_setscheduler", refused)
    before = niceness()
    assert at_low_priority(lambda: (niceness(), gave_way())) == (NICEST, False)
    assert niceness() == before
    assert not gave_way()
    go_on = threading.Event()
    kept = threading.Thread(target=go_on.wait, daemon=True)
    at_low_priority(kept.start)
    assert gave_way(), "a thread that it started is left"
    go_on.set()
    kept.join()
