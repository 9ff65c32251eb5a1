"""Legal topic names are Kafka's."""

from __future__ import annotations

import pytest

from sparklog.core.errors import InvalidTopic
from sparklog.core.topic_names import check_topic_name


@pytest.mark.parametrize(
    "name", ["a", "flights", "a.b_c-9", "__consumer_offsets", "...", "x" * 249]
)
def test_a_name_kafka_takes_is_taken(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "at least one character"),
        (".", "cannot be called"),
        ("..", "cannot be called"),
        ("x" * 250, "length=250"),
        ("a/b", "'a/b'"),
        ("a b", "'a b'"),
        ("a~b", "'a~b'"),
        ("ä", "ASCII"),
        ("a\n", r"'a\n'"),
        ("٣", "ASCII"),
    ],
)
def test_a_name_kafka_refuses_is_refused_with_the_reason(name: str, why: str) -> None:
    with pytest.raises(InvalidTopic) as error:
        check_topic_name(name)
    assert why in str(error.value)
