"""Frames come out as they went in, however the stream is cut on its way."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.core.errors import InvalidRequest
from sparklog.protocol.messages.frames import FrameReader

FRAME_BYTES_MAX = 60


def stream_of(frames: list[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


def taken(reader: FrameReader) -> list[bytes]:
    found = []
    while (frame := reader.next_frame()) is not None:
        found.append(frame)
    return found


@given(
    frames=st.lists(st.binary(max_size=FRAME_BYTES_MAX), max_size=8),
    cuts=st.lists(st.integers(min_value=1, max_value=90), max_size=40),
)
def test_frames_are_the_same_for_any_cut_of_the_stream(
    frames: list[bytes], cuts: list[int]
) -> None:
    stream = stream_of(frames)
    reader = FrameReader(FRAME_BYTES_MAX)
    found: list[bytes] = []
    at = 0
    for size in [*cuts, len(stream)]:
        reader.feed(stream[at : at + size])
        at += size
        found += taken(reader)
    assert found == frames
    assert len(reader) == 0


@given(frames=st.lists(st.binary(max_size=FRAME_BYTES_MAX), min_size=1, max_size=4), data=st.data())
def test_held_bytes_are_counted(frames: list[bytes], data: st.DataObject) -> None:
    stream = stream_of(frames)
    cut = data.draw(st.integers(min_value=0, max_value=len(stream)))
    reader = FrameReader(FRAME_BYTES_MAX)
    reader.feed(stream[:cut])
    assert len(reader) == cut
    whole = sum(4 + len(frame) for frame in taken(reader))
    assert len(reader) == cut - whole < 4 + FRAME_BYTES_MAX
    reader.feed(stream[cut:])
    taken(reader)
    assert len(reader) == 0


@pytest.mark.parametrize("size", [-1, FRAME_BYTES_MAX + 1, 2**31 - 1])
def test_a_size_that_no_frame_has_is_refused_before_its_bytes_come(size: int) -> None:
    reader = FrameReader(FRAME_BYTES_MAX)
    reader.feed(stream_of([b"first"]) + struct.pack(">i", size))
    assert reader.next_frame() == b"first"
    with pytest.raises(InvalidRequest, match=f"size={size}"):
        reader.next_frame()
