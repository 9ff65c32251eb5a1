"""Dead letters: what they say about their records."""

from __future__ import annotations

from uuid import UUID

import pyarrow as pa
import pytest

from sparklog.broker.share.dead_letters import REJECTED, TOO_OFTEN, dead_letter_rows
from sparklog.coordinator.share.delivery_state import SharePartitionKey
from sparklog.coordinator.share.in_flight import DeadLetters
from sparklog.protocol.records.columns import RECORDS_SCHEMA
from sparklog.protocol.records.encoder import encode
from sparklog.protocol.records.record_batch import decode

KEY = SharePartitionKey("workers", UUID(int=1), 3)
RECORDS = pa.RecordBatch.from_pylist(
    [
        {"offset": 7, "key": b"k", "value": b"v", "headers": [{"key": "own", "value": b"1"}]},
        {"offset": 9, "key": None, "value": None, "headers": None},
    ],
    RECORDS_SCHEMA,
)


@pytest.mark.parametrize("copies", [True, False])
@pytest.mark.parametrize(("rejected", "reason"), [(True, REJECTED), (False, TOO_OFTEN)])
def test_dead_letter_names_the_place_and_the_reason(
    copies: bool, rejected: bool, reason: str
) -> None:
    letters = DeadLetters(7, 9, 5, rejected=rejected)
    rows = dead_letter_rows(RECORDS, "orders", KEY, letters, copies=copies)
    found = decode(encode(rows, base_offset=0)).records.to_pylist()
    headers = [{h["key"]: h["value"] for h in row["headers"]} for row in found]
    for offset, said in zip((7, 9), headers, strict=True):
        assert {k: v for k, v in said.items() if k != "own"} == {
            "__dlq.errors.topic": b"orders",
            "__dlq.errors.partition": b"3",
            "__dlq.errors.offset": str(offset).encode(),
            "__dlq.errors.group": b"workers",
            "__dlq.errors.delivery.count": b"5",
            "__dlq.errors.message": reason.encode(),
        }
    assert [said.get("own") for said in headers] == [b"1" if copies else None, None]
    assert [row["value"] for row in found] == ([b"v", None] if copies else [None, None])
    assert [row["key"] for row in found] == ([b"k", None] if copies else [None, None])
