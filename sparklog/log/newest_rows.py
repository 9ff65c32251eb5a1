"""Which rows have the newest record of their key, of any number of keys, in bounded memory.

Rows come in order. While the keys fit a table of `keys_max`, each row marks itself and unmarks the
one before it. When they do not, what the table knows and all that follows goes to files by hash;
each file then has few enough keys for a table of its own. So the keys are read once, and memory is
one table and one bit per row, whatever the number of keys.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from sparklog.core.entropy import SYSTEM_ENTROPY, Entropy
from sparklog.core.errors import DataCorrupt
from sparklog.log.key_kernels import EMPTY_ROW, UInt64s, hash_keys, keep_newest
from sparklog.protocol.arrays import Bytes, Int64s
from sparklog.protocol.arrow_records import binary_view

KEYS_MAX: Final = 1 << 22
"""Keys in one table: with twice the slots, of 24 bytes, 200 MB, and 300 while it grows."""
_FIRST_SLOTS: Final = 1 << 16
_PART_SLOTS: Final = 1 << 18
_FILES_MAX: Final = 256
_FILE_BUFFER_BYTES: Final = 1 << 18
_SPILLED = np.dtype([("low", "<u8"), ("high", "<u8"), ("row", "<i8")])


class NewestRows:
    """See the module. Not thread-safe; close it, or use it as a context, to remove its files."""

    def __init__(
        self,
        rows_max: int,
        *,
        keys_max: int = KEYS_MAX,
        folder: str | None = None,
        entropy: Entropy = SYSTEM_ENTROPY,
    ) -> None:
        """Take at most `rows_max` rows; files go under `folder`, or where temporary files go."""
        seed = entropy.random_bytes(16)
        self._seed = int.from_bytes(seed[:8], "little"), int.from_bytes(seed[8:], "little")
        self._rows_max = rows_max
        self._keys_max = keys_max
        self._folder = folder
        self._bits: Bytes = np.zeros((rows_max + 7) // 8, np.uint8)
        self._table = _Table(min(_FIRST_SLOTS, _slots_for(keys_max)))
        self._taken = 0
        self._spill: _Spill | None = None

    def __enter__(self) -> NewestRows:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove the files."""
        self.close()

    def close(self) -> None:
        """Remove the files."""
        if self._spill is not None:
            self._spill.close()
            self._spill = None

    @property
    def spilled(self) -> bool:
        """Return whether the keys did not fit memory."""
        return self._spill is not None

    def add(self, keys: pa.Array, counts: npt.NDArray[np.bool_] | None = None) -> None:
        """Take in the next rows. Those with a null key, or where `counts` is False, do not count.

        Raises:
            DataCorrupt: the array's offsets lead outside its data.
        """
        first, self._taken = self._taken, self._taken + len(keys)
        assert self._taken <= self._rows_max, (self._taken, self._rows_max)
        if keys.null_count == len(keys):
            return
        view = binary_view(keys, len(keys), "key")
        low, high = np.empty(len(keys), np.uint64), np.empty(len(keys), np.uint64)
        bad_row = hash_keys(view.data, view.ends, *self._seed, low, high)
        if bad_row >= 0:
            raise DataCorrupt(
                "Arrow array is malformed: its offsets lead outside its data; run verify. "
                f"column=key row={bad_row}"
            )
        rows = np.arange(first, self._taken, dtype=np.int64)
        wanted = counts
        if keys.null_count:
            valid = keys.is_valid().to_numpy(zero_copy_only=False)
            wanted = valid if wanted is None else wanted & valid
        if wanted is not None and not wanted.all():
            low, high, rows = low[wanted], high[wanted], rows[wanted]
        self._take(low, high, rows)

    def finish(self) -> Bytes:
        """Return the bitmap: the newest row of each key is set. Call it once, at the end."""
        if self._spill is not None:
            self._table = _Table(_FIRST_SLOTS)
            self._spill.replay(self._take_all)
        return self._bits

    def _take_all(self, low: UInt64s, high: UInt64s, rows: Int64s, *, fresh: bool) -> None:
        if fresh:
            self._table = _Table(_FIRST_SLOTS)
        self._table.take(low, high, rows, self._bits, keys_max=None)

    def _take(self, low: UInt64s, high: UInt64s, rows: Int64s) -> None:
        if self._spill is None:
            done = self._table.take(low, high, rows, self._bits, keys_max=self._keys_max)
            if done == len(rows):
                return
            low, high, rows = low[done:], high[done:], rows[done:]
            possible = self._table.keys + self._rows_max - int(rows[0])
            self._spill = _Spill(2 * -(-possible // self._keys_max), self._folder)
            for known in self._table.content():
                self._spill.add(*known)
            self._table = _Table(0)
        self._spill.add(low, high, rows)


class _Table:
    """An open-addressing table that doubles when it is half full."""

    def __init__(self, slots: int) -> None:
        self.keys = 0
        self._low: UInt64s = np.empty(slots, np.uint64)
        self._high: UInt64s = np.empty(slots, np.uint64)
        self._rows: Int64s = np.full(slots, EMPTY_ROW, np.int64)

    def take(
        self, low: UInt64s, high: UInt64s, rows: Int64s, bits: Bytes, *, keys_max: int | None
    ) -> int:
        """Take in rows, and return how many: all, unless there would be more than `keys_max`."""
        done = 0
        while done < len(rows):
            half = len(self._rows) // 2
            room = half if keys_max is None else min(half, keys_max)
            told = keep_newest(
                low[done:], high[done:], rows[done:],
                self._low, self._high, self._rows, bits, room - self.keys,
            )  # fmt: skip
            done += told >> 32
            self.keys += told & 0xFFFFFFFF
            if done < len(rows):
                if self.keys == keys_max:
                    return done
                self._grow(bits)
        return done

    def content(self) -> Iterator[tuple[UInt64s, UInt64s, Int64s]]:
        """Yield the hashes and newest rows of all keys, in no order, part by part."""
        for at in range(0, len(self._rows), _PART_SLOTS):
            part = slice(at, at + _PART_SLOTS)
            used = self._rows[part] != EMPTY_ROW
            yield self._low[part][used], self._high[part][used], self._rows[part][used]

    def _grow(self, bits: Bytes) -> None:
        bigger = _Table(2 * len(self._rows))
        for low, high, rows in self.content():
            # Each key is there once and its row marked, so no bit changes.
            bigger.take(low, high, rows, bits, keys_max=None)
        self._low, self._high, self._rows = bigger._low, bigger._high, bigger._rows


class _Spill:
    """Hashes and rows in files: all of one key are in one file, in the order they came."""

    def __init__(self, files: int, folder: str | None) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="sparklog-keys-", dir=folder)
        count = min(_FILES_MAX, max(2, files))
        self._files = [
            (Path(self._folder.name) / str(n)).open("w+b", buffering=_FILE_BUFFER_BYTES)
            for n in range(count)
        ]

    def add(self, low: UInt64s, high: UInt64s, rows: Int64s) -> None:
        which = (high % np.uint64(len(self._files))).astype(np.int64)
        order = np.argsort(which, kind="stable")
        packed = np.empty(len(rows), _SPILLED)
        packed["low"], packed["high"], packed["row"] = low[order], high[order], rows[order]
        ends = np.searchsorted(which[order], np.arange(len(self._files) + 1))
        for n, file in enumerate(self._files):
            part = packed[ends[n] : ends[n + 1]]
            if len(part):
                file.write(part.tobytes())

    def replay(self, take: Callable[..., None]) -> None:
        """Give the content of file after file; `fresh` says that a file begins."""
        for file in self._files:
            file.flush()
            file.seek(0)
            fresh = True
            while len(data := file.read(_SPILLED.itemsize << 18)):
                part = np.frombuffer(data, _SPILLED)
                columns = (part[name].copy() for name in ("low", "high", "row"))
                take(*columns, fresh=fresh)
                fresh = False

    def close(self) -> None:
        for file in self._files:
            file.close()
        self._folder.cleanup()


def _slots_for(keys: int) -> int:
    return 1 << max(1, (2 * keys - 1).bit_length())
