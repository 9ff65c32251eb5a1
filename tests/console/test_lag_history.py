"""The history of lags: its bounds, and groups that pages no longer show."""

from __future__ import annotations

from sparklog.console.lag_history import GROUPS_MAX, SAMPLES_MAX, UNSEEN_S, LagHistory
from sparklog.core.clock import ManualClock
from sparklog.core.errors import Unavailable


def test_history_is_bounded_and_forgets_unseen_groups() -> None:
    clock = ManualClock()
    asked: list[str] = []

    def lag_of(group_id: str) -> int | None:
        asked.append(group_id)
        if group_id == "broken":
            raise Unavailable("brokers do not answer")
        return None if group_id == "empty" else len(asked)

    with LagHistory(lag_of, clock) as history:
        for group_id in ("broken", "empty", "group"):
            history.watch(group_id, None if group_id == "empty" else 7)
        assert history.chart("group") is None
        for _ in range(SAMPLES_MAX + 5):
            clock.sleep_s(1.0)
            history.sample()
        chart = history.chart("group")
        assert chart is not None
        assert len(chart["times"]) == len(chart["rates"]) == SAMPLES_MAX
        assert chart["times"][-1] - chart["times"][-2] == 1.0
        assert history.chart("broken") is None
        assert history.chart("empty") is None
        assert history.chart("never") is None

        clock.sleep_s(UNSEEN_S + 1)
        history.watch("new", 1)
        asked.clear()
        history.sample()
        assert asked == ["new"]
        for number in range(GROUPS_MAX + 1):
            history.watch(f"g{number}", 1)
        asked.clear()
        history.sample()
        assert len(asked) == GROUPS_MAX
        assert "new" not in asked
