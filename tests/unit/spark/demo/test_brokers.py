"""The demo's judge of order: it must find a record that comes after one sent later."""

from __future__ import annotations

from sparklog.spark.demo.brokers import out_of_order
from sparklog.spark.demo.plain_client import Read


def test_order_is_by_partition_for_any_order_of_reading() -> None:
    found = [Read(1, 0, 1), Read(0, 1, 2), Read(0, 0, 0), Read(1, 7, 3)]
    assert out_of_order(found) == 0


def test_a_record_after_a_later_one_is_out_of_order() -> None:
    assert out_of_order([Read(0, 0, 5), Read(0, 1, 4), Read(0, 2, 6)]) == 1
