"""However a client spends, over any time it gets its rate and what it may have at once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparklog.core.quotas import TokenBucket

AMOUNTS = st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 100)), max_size=50)


@given(st.floats(1, 1e9), st.floats(0.1, 60), AMOUNTS)
def test_waiting_caller_gets_at_most_its_rate_and_one_burst(
    per_s: float, burst_s: float, spent: list[tuple[float, float]]
) -> None:
    bucket = TokenBucket(per_s, burst_s, 0.0)
    now_s = total = 0.0
    for amount, pause_s in spent:
        wait_s = bucket.spend(amount, now_s)
        assert wait_s >= 0.0
        total += amount
        now_s += wait_s
        assert total <= per_s * (now_s + burst_s) * (1 + 1e-9) + 1e-3
        now_s += pause_s


@given(st.floats(1, 1e9), st.floats(0.1, 60), st.floats(0, 1))
def test_caller_within_a_burst_does_not_wait(per_s: float, burst_s: float, share: float) -> None:
    bucket = TokenBucket(per_s, burst_s, 5.0)
    assert bucket.spend(per_s * burst_s * share, 5.0) == 0.0
    assert bucket.is_full(5.0 + burst_s * 1.001 + 1e-6)


@given(st.floats(1, 1e6), st.floats(0, 1e9), st.floats(0, 1e4))
def test_a_clock_that_goes_back_gives_nothing(per_s: float, amount: float, back_s: float) -> None:
    bucket = TokenBucket(per_s, 10.0, 100.0)
    before = bucket.spend(amount, 100.0)
    assert bucket.spend(0.0, 100.0 - back_s) == before
