"""Share sessions: epochs, limits and the order of partitions."""

from __future__ import annotations

from uuid import UUID

import pytest

from sparklog.broker.share.sessions import EPOCH_MAX, ShareSessionCache, ShareSessionKey
from sparklog.coordinator.share.errors import (
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)

KEY = ShareSessionKey("g", "m")
TOPIC = UUID(int=7)


def test_each_request_has_the_epoch_after_the_last_one() -> None:
    cache = ShareSessionCache(2)
    session = cache.fetching(KEY, 0)
    assert cache.fetching(KEY, 1) is session
    assert cache.continued(KEY, 2) is session
    with pytest.raises(InvalidShareSessionEpoch, match="expected=3"):
        cache.fetching(KEY, 2)
    assert cache.continued(KEY, 3) is session


def test_the_epoch_after_the_highest_one_is_one() -> None:
    cache = ShareSessionCache(1)
    session = cache.fetching(KEY, 0)
    session.epoch = EPOCH_MAX
    assert cache.continued(KEY, EPOCH_MAX) is session
    assert session.epoch == 1


def test_unknown_session_is_refused_until_one_is_opened() -> None:
    cache = ShareSessionCache(1)
    with pytest.raises(ShareSessionNotFound):
        cache.fetching(KEY, 5)
    with pytest.raises(ShareSessionNotFound):
        cache.continued(KEY, -1)
    session = cache.fetching(KEY, 0)
    assert cache.continued(KEY, -1) is session
    assert cache.end(session)
    assert not cache.end(session), "it was ended before"
    assert len(cache) == 0


def test_a_broker_has_a_bounded_number_of_sessions() -> None:
    cache = ShareSessionCache(1)
    first = cache.fetching(KEY, 0)
    with pytest.raises(ShareSessionLimitReached, match=r"group\.share\.max\.share\.sessions"):
        cache.fetching(ShareSessionKey("g", "n"), 0)
    second = cache.fetching(KEY, 0)
    assert first.ended, "the member has opened another one"
    assert not cache.end(first)
    assert cache.end(second)


def test_partition_that_had_records_comes_last_the_next_time() -> None:
    session = ShareSessionCache(1).fetching(KEY, 0)
    session.change([(TOPIC, 0), (TOPIC, 1), (TOPIC, 2)], [])
    session.served((TOPIC, 0))
    assert list(session.partitions) == [(TOPIC, 1), (TOPIC, 2), (TOPIC, 0)]
    session.change([], [(TOPIC, 1)])
    session.served((TOPIC, 1))
    assert list(session.partitions) == [(TOPIC, 2), (TOPIC, 0)], "it is forgotten"
