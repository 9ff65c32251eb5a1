"""Placement of names in partitions, with numbers from Java's `String.hashCode`."""

from __future__ import annotations

import pytest

from sparklog.coordinator.internal_topics import java_hash, partition_for


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", -(2**31)),
        ("console-consumer-12345", java_hash("console-consumer-1234") * 31 + ord("5")),
        ("\u20ac", 8364),
        ("\U0001f600", 55357 * 31 + 56832),
    ],
)
def test_hash_equals_javas(text: str, number: int) -> None:
    wrapped = (number + 2**31) % 2**32 - 2**31
    assert java_hash(text) == wrapped


def test_lowest_hash_maps_to_the_first_partition() -> None:
    assert partition_for("polygenelubricants", 50) == 0


def test_negative_hashes_map_by_their_absolute_value() -> None:
    name = "group-b-7"
    assert partition_for(name, 50) == abs(java_hash(name)) % 50
