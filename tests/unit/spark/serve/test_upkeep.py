"""When scheduled jobs give way to brokers that wait for an executor."""

from __future__ import annotations

from sparklog.spark.serve.upkeep import GIVE_WAY_AFTER_S, BrokerWait


def test_broker_wait_is_long_once_per_interval() -> None:
    wait = BrokerWait()
    seconds = range(int(2 * GIVE_WAY_AFTER_S) + 4)
    assert [s for s in seconds if wait.is_long(True, s)] == [
        GIVE_WAY_AFTER_S + 1,
        2 * GIVE_WAY_AFTER_S + 2,
    ]


def test_broker_wait_starts_anew_when_every_broker_has_an_executor() -> None:
    wait = BrokerWait()
    assert not wait.is_long(True, 0)
    assert not wait.is_long(False, GIVE_WAY_AFTER_S)
    assert not wait.is_long(True, GIVE_WAY_AFTER_S + 1)
    assert not wait.is_long(True, 2 * GIVE_WAY_AFTER_S)
    assert wait.is_long(True, 2 * GIVE_WAY_AFTER_S + 2)
