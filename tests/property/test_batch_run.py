"""Batches decoded together give what each gives alone, or are refused as one of them is alone."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.core.errors import DataCorrupt
from sparklog.protocol.records.columns import RECORDS_SCHEMA
from sparklog.protocol.records.decoder import decode_runs, read_headers
from sparklog.protocol.records.header import (
    CODEC_MASK,
    HEADER_BYTES,
    BatchHeader,
    Codec,
    parse_header,
    seal_header,
)
from sparklog.protocol.records.record_batch import decode
from tests.harness.golden_batches import data_of, expected

ONE_BATCH = sorted(name for name in expected() if name != "several")
SMALL = [name for name in ONE_BATCH if len(data_of(name)) < 2_000]
run_sizes = st.sampled_from([1, 200, 1 << 20])


def together(batches: list[bytes], run_bytes: int) -> pa.Table:
    """Return all rows, decoded in runs; checks how many batches the runs say they are."""
    runs = list(decode_runs(batches, read_headers(batches), run_bytes=run_bytes))
    assert sum(count for count, _ in runs) == len(batches)
    for _, rows in runs:
        rows.validate(full=True)
    return pa.Table.from_batches([rows for _, rows in runs], RECORDS_SCHEMA)


def one_by_one(batches: list[bytes]) -> pa.Table:
    """Return all rows, each batch decoded by itself."""
    return pa.Table.from_batches([decode(b).records for b in batches], RECORDS_SCHEMA)


@given(st.lists(st.sampled_from(ONE_BATCH), max_size=6), run_sizes)
def test_batches_decode_together_as_alone(names: list[str], run_bytes: int) -> None:
    batches = [data_of(name) for name in names]
    assert together(batches, run_bytes).equals(one_by_one(batches))


@given(st.lists(st.sampled_from(ONE_BATCH), min_size=1, max_size=6))
def test_table_of_headers_equals_each_header(names: list[str]) -> None:
    batches = [data_of(name) for name in names]
    table = read_headers(batches)
    assert [BatchHeader(*row.tolist()) for row in table] == [parse_header(b) for b in batches]


@given(st.data(), run_sizes)
def test_one_damaged_batch_rejects_the_whole_run(data: st.DataObject, run_bytes: int) -> None:
    batch = bytearray(data_of(data.draw(st.sampled_from(SMALL))))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(HEADER_BYTES - 4, len(batch) - 1))
        batch[at] = data.draw(st.integers(0, 255))
    header = parse_header_or_none(batch)
    if header is None:
        return
    records = bytes(batch[HEADER_BYTES:])
    damaged = seal_header(header, records) + records
    sound = data_of(data.draw(st.sampled_from(SMALL)))
    batches = [sound, damaged, sound]
    try:
        alone = one_by_one(batches)
    except DataCorrupt:
        with pytest.raises(DataCorrupt):
            together(batches, run_bytes)
    else:
        assert together(batches, run_bytes).equals(alone)


def parse_header_or_none(batch: bytearray) -> BatchHeader | None:
    """Return the header, if the damage left one that can be."""
    try:
        return parse_header(batch)
    except DataCorrupt:
        return None


@pytest.mark.parametrize("codec", list(Codec))
def test_an_empty_batch_is_not_decompressed(codec: Codec) -> None:
    header = parse_header(data_of("empty"))
    attributes = header.attributes & ~CODEC_MASK | codec
    batch = seal_header(header._replace(attributes=attributes), b"")
    assert together([batch, data_of("one-record")], 1).num_rows == 1


@pytest.mark.parametrize(
    "spoil",
    [
        lambda b: b[:-1],
        lambda b: b + b"\0",
        lambda b: b[: HEADER_BYTES - 1],
        lambda b: b"",
        lambda b: b[:16] + b"\1" + b[17:],
        lambda b: b[:57] + b"\x7f\xff\xff\xff" + b[61:],
    ],
    ids=["cut", "longer", "in the header", "nothing", "magic", "count"],
)
def test_bytes_other_than_one_batch_are_rejected(spoil: object) -> None:
    assert callable(spoil)
    batch = data_of("one-record")
    with pytest.raises(DataCorrupt):
        read_headers([batch, spoil(batch), batch])
