from __future__ import annotations

from datetime import UTC, datetime
from math import inf
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sparklog.sql.columns import TIMESTAMP_US, named_columns, stored_columns
from sparklog.sql.filters import (
    ANY,
    NONE,
    AllOf,
    Among,
    AnyOf,
    Interval,
    Unknown,
    Within,
    condition_of,
    hull,
    keys_of,
    may_match,
)

OFFSET, KEY, PARTITION = pc.field("offset"), pc.field("key"), pc.field("partition")
TIME = pc.field("timestamp")
NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)
NOON_US = int(NOON.timestamp()) * 1_000_000


def valid(field: Any, inner: Any) -> Any:
    """Wrap a condition as DuckDB wraps IN."""
    return pc.if_else(field.is_valid(), inner, pa.scalar(None, pa.bool_()))


@pytest.mark.parametrize(
    ("expression", "condition"),
    [
        (OFFSET == 5, Among("offset", frozenset([5]))),
        (OFFSET < 5, Within("offset", Interval(-inf, 4))),
        (OFFSET <= -5, Within("offset", Interval(-inf, -5))),
        (OFFSET > 5, Within("offset", Interval(6, inf))),
        (OFFSET >= 5, Within("offset", Interval(5, inf))),
        (OFFSET != 5, Unknown()),
        (KEY == b"\x00k", Among("key", frozenset([b"\x00k"]))),
        (KEY == b"12", Among("key", frozenset([b"12"]))),
        (pa.scalar(NOON, TIMESTAMP_US) <= TIME, Within("timestamp", Interval(NOON_US, inf))),
        (valid(OFFSET, OFFSET.isin([1, 2])), Among("offset", frozenset([1, 2]))),
        (valid(KEY, KEY.isin([b"k1", b"12"])), Among("key", frozenset([b"k1", b"12"]))),
        (
            valid(TIME, TIME.isin(pa.array([NOON], TIMESTAMP_US))),
            Among("timestamp", frozenset([NOON_US])),
        ),
        (
            (OFFSET > 5) & ((KEY == b"a") | (PARTITION == 1)),
            AllOf(
                (
                    Within("offset", Interval(6, inf)),
                    AnyOf((Among("key", frozenset([b"a"])), Among("partition", frozenset([1])))),
                )
            ),
        ),
        ((OFFSET > 5) & KEY.is_null(), AllOf((Within("offset", Interval(6, inf)), Unknown()))),
        (~KEY.is_valid() & (OFFSET > 5), AllOf((Unknown(), Within("offset", Interval(6, inf))))),
        (valid(KEY, KEY.isin([b"k%d" % i for i in range(99)])), Unknown()),
        (
            (pc.field("topic") == 'a" and (key == "00")') & (OFFSET > 5),
            AllOf(
                (
                    Among("topic", frozenset([r'"a\" and (key == \"00\")"'])),
                    Within("offset", Interval(6, inf)),
                )
            ),
        ),
    ],
)
def test_arrows_text_of_an_expression_is_understood(expression: Any, condition: Any) -> None:
    assert condition_of(str(expression)) == condition


@pytest.mark.parametrize("text", ["", "(", "offset", "(offset > )", "(offset > 1) trailing", "?"])
def test_text_in_another_form_may_match_anything(text: str) -> None:
    assert condition_of(text) == Unknown()


def test_no_filter_may_match_anything() -> None:
    assert condition_of(None) == Unknown()
    assert may_match(Unknown(), {"offset": Interval(1, 2)})


def test_bounds_follow_from_the_parts() -> None:
    condition = condition_of(
        str(((PARTITION == 0) & (OFFSET > 10)) | ((PARTITION == 1) & (OFFSET < 3)))
    )
    assert hull(condition, "offset", {"partition": Interval(0, 0)}) == Interval(11, inf)
    assert hull(condition, "offset", {"partition": Interval(1, 1)}) == Interval(-inf, 2)
    assert hull(condition, "offset", {"partition": Interval(2, 2)}) == NONE
    assert hull(condition, "timestamp", {}) == ANY
    assert not may_match(condition, {"partition": Interval(0, 0), "offset": Interval(0, 10)})
    assert may_match(condition, {"partition": Interval(0, 0), "offset": Interval(0, 11)})


def test_keys_are_known_only_if_every_match_has_one() -> None:
    either = condition_of(str((KEY == b"a") | (KEY == b"b")))
    assert keys_of(either, {}) == frozenset([b"a", b"b"])
    assert keys_of(condition_of(str((KEY == b"a") | (OFFSET > 1))), {}) is None
    assert keys_of(condition_of(str((KEY == b"a") & (OFFSET > 1))), {}) == frozenset([b"a"])
    assert keys_of(Unknown(), {}) is None


def test_columns_of_a_filter_are_never_too_few() -> None:
    assert named_columns(str(pa.scalar(NOON, TIMESTAMP_US) < TIME)) == {"timestamp"}
    assert named_columns("timestampType") >= {"timestampType"}
    assert stored_columns(["value", "topic", "offset"]) == ["offset", "value"]
