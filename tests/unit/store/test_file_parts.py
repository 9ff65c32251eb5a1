"""Low-priority threads: they use a disk in small parts, and leave it idle half of the time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from sparklog.core.clock import ManualClock
from sparklog.store.file import (
    FORCED_AT_ONCE_BYTES,
    GENTLE_READ_BYTES,
    GENTLE_WRITE_BYTES,
    read_bytes,
    write_bytes,
)

DATA = bytes(range(256)) * (FORCED_AT_ONCE_BYTES // 256) + b"the rest"
PART_S = 0.25
Part = TypeVar("Part", bytes, memoryview)


class SlowDisk(ManualClock):
    """Every part takes `PART_S`. Notes how large they were, and how long everybody rested."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.parts: list[int] = []
        self.forced = 0
        self.read_ahead = True
        self.rested_s = 0.0
        read, write, force, advise = os.read, os.write, os.fdatasync, os.posix_fadvise

        def reading(descriptor: int, size_bytes: int) -> bytes:
            return self._passed(read(descriptor, size_bytes))

        def writing(descriptor: int, data: memoryview) -> int:
            return write(descriptor, self._passed(data))

        def forcing(descriptor: int) -> None:
            self.forced += 1
            force(descriptor)

        def advising(descriptor: int, offset: int, length: int, advice: int) -> None:
            self.read_ahead = advice != os.POSIX_FADV_RANDOM
            advise(descriptor, offset, length, advice)

        monkeypatch.setattr(os, "read", reading)
        monkeypatch.setattr(os, "write", writing)
        monkeypatch.setattr(os, "fdatasync", forcing)
        monkeypatch.setattr(os, "posix_fadvise", advising)

    def sleep_s(self, seconds: float) -> None:
        self.rested_s += seconds
        super().sleep_s(seconds)

    def _passed(self, data: Part) -> Part:
        self.parts.append(len(data))
        super().sleep_s(PART_S)
        return data


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    descriptor = os.open(tmp_path / "object", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


@pytest.fixture
def makes_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparklog.store.background_io.makes_way", lambda: True)


def test_low_priority_thread_writes_in_parts_and_rests_as_long(
    descriptor: int, makes_way: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk(monkeypatch)
    write_bytes(descriptor, DATA, disk, fsync=True)
    whole, rest = divmod(len(DATA), GENTLE_WRITE_BYTES)
    assert disk.parts == [GENTLE_WRITE_BYTES] * whole + [rest]
    assert disk.forced == whole, "the last part with the file's metadata"
    assert disk.rested_s == pytest.approx((len(disk.parts) - 1) * PART_S), "between parts"
    assert os.pread(descriptor, 2 * len(DATA), 0) == DATA


def test_low_priority_thread_reads_in_parts_without_read_ahead(
    descriptor: int, makes_way: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.pwrite(descriptor, DATA, 0)
    disk = SlowDisk(monkeypatch)
    assert read_bytes(descriptor, len(DATA), disk) == DATA
    assert set(disk.parts[:-1]) == {GENTLE_READ_BYTES}
    assert not disk.read_ahead
    assert disk.rested_s == pytest.approx((len(disk.parts) - 1) * PART_S), "between parts"


def test_normal_thread_reads_and_writes_without_pauses(
    descriptor: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk(monkeypatch)
    write_bytes(descriptor, DATA, disk, fsync=True)
    os.lseek(descriptor, 0, os.SEEK_SET)
    assert read_bytes(descriptor, len(DATA), disk) == DATA
    assert disk.parts == [FORCED_AT_ONCE_BYTES, len(b"the rest"), len(DATA)]
    assert disk.forced == 1
    assert disk.read_ahead
    assert disk.rested_s == 0


def test_a_small_object_is_never_waited_for(
    descriptor: int, makes_way: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SlowDisk(monkeypatch)
    write_bytes(descriptor, b"small", disk, fsync=True)
    os.lseek(descriptor, 0, os.SEEK_SET)
    assert read_bytes(descriptor, 5, disk) == b"small"
    assert disk.rested_s == 0


def test_short_file_is_read_to_its_end(
    descriptor: int, makes_way: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.pwrite(descriptor, DATA, 0)
    assert read_bytes(descriptor, 2 * len(DATA), SlowDisk(monkeypatch)) == DATA
    assert read_bytes(descriptor, 1, SlowDisk(monkeypatch)) == b""
