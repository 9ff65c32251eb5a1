"""Records of transactional ids: their bytes, which never change."""

from __future__ import annotations

import pytest

from sparklog.coordinator.effects import CoordinatorRecord
from sparklog.coordinator.transaction.state import (
    TransactionMetadata,
    TransactionState,
    decode,
    decode_key,
    encode,
)
from sparklog.core.errors import DataCorrupt

KEY = "0000 0003 706179"
BEGIN = "00000000000003e8 0003 0000ea60"
TIME = "0000018bcfe56800"
NOW_MS = 1_700_000_000_000

GOLDEN: list[tuple[TransactionMetadata, str]] = [
    (
        TransactionMetadata("pay", 1000, 3, 60_000, NOW_MS),
        f"0001 {BEGIN} 00 00 {TIME} ffffffffffffffff 00",
    ),
    (
        TransactionMetadata(
            "pay",
            1000,
            3,
            60_000,
            NOW_MS,
            TransactionState.ONGOING,
            frozenset({("b", 1), ("a", 0), ("b", 0)}),
            NOW_MS + 1,
        ),
        (
            f"0001 {BEGIN} 01 03 0261 02 00000000 00 0262 03 00000000 00000001 00"
            f" {TIME} 0000018bcfe56801 00"
        ),
    ),
    (
        TransactionMetadata(
            "pay",
            1000,
            3,
            60_000,
            NOW_MS,
            TransactionState.PREPARE_COMMIT,
            frozenset({("a", 0)}),
            7,
            last_epoch=2,
            previous_producer_id=999,
            next_producer_id=1001,
            client_version=2,
        ),
        (
            f"0001 {BEGIN} 02 02 0261 02 00000000 00 {TIME} 0000000000000007"
            " 04 00 08 00000000000003e7 01 08 00000000000003e9 02 02 0002 64 02 0002"
        ),
    ),
]


@pytest.mark.parametrize(("transaction", "value"), GOLDEN)
def test_transaction_records_keep_their_bytes(transaction: TransactionMetadata, value: str) -> None:
    stored = CoordinatorRecord(bytes.fromhex(KEY), bytes.fromhex(value))
    assert encode(transaction) == stored
    assert decode_key(stored.key) == "pay"
    assert decode("pay", bytes.fromhex(value)) == transaction


def test_records_before_tagged_fields_are_decoded() -> None:
    plain = f"0000 {BEGIN} 01 00000001 0001 61 00000002 00000000 00000005 {TIME} 0000000000000007"
    assert decode("pay", bytes.fromhex(plain)) == TransactionMetadata(
        "pay",
        1000,
        3,
        60_000,
        NOW_MS,
        TransactionState.ONGOING,
        frozenset({("a", 0), ("a", 5)}),
        7,
    )


@pytest.mark.parametrize("state", ["06", "07", "63"])
def test_unknown_state_is_rejected(state: str) -> None:
    value = f"0001 {BEGIN} {state} 00 {TIME} ffffffffffffffff 00"
    with pytest.raises(DataCorrupt, match=f"state={int(state, 16)}"):
        decode("pay", bytes.fromhex(value))
