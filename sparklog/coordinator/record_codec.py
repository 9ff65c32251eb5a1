"""FieldWriter and FieldReader: fields of the records in internal topics.

Numbers are big-endian, as in Kafka's messages. A length precedes strings and bytes. It has 16 and
32 bits in plain records; in flexible ones it is an unsigned varint of the length plus one.
Source: Kafka protocol guide, protocol primitive types; KIP-482.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Container
from typing import Final, TypeVar
from uuid import UUID

from sparklog.core.errors import DataCorrupt

Item = TypeVar("Item")

_INT8: Final = struct.Struct(">b")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_VARINT_BITS_MAX: Final = 35
_NULL: Final = -1


class FieldWriter:
    """Appends fields to a record."""

    def __init__(self, version: int, *, flexible: bool = False) -> None:
        """Begin with the record's version, as keys and values both do."""
        self._out = bytearray(_INT16.pack(version))
        self.flexible = flexible

    def int8(self, value: int) -> None:
        """Append 8 bits."""
        self._out += _INT8.pack(value)

    def int16(self, value: int) -> None:
        """Append 16 bits."""
        self._out += _INT16.pack(value)

    def int32(self, value: int) -> None:
        """Append 32 bits."""
        self._out += _INT32.pack(value)

    def int64(self, value: int) -> None:
        """Append 64 bits."""
        self._out += _INT64.pack(value)

    def uuid(self, value: UUID) -> None:
        """Append the 16 bytes of an id."""
        self._out += value.bytes

    def varint(self, value: int) -> None:
        """Append an unsigned varint."""
        while value > 0x7F:
            self._out.append(0x80 | (value & 0x7F))
            value >>= 7
        self._out.append(value)

    def string(self, text: str | None) -> None:
        """Append text, or null."""
        self._sized(None if text is None else text.encode(), self.int16)

    def sized_bytes(self, data: bytes | None) -> None:
        """Append bytes, or null."""
        self._sized(data, self.int32)

    def count(self, items: int) -> None:
        """Append the number of elements that follow."""
        self.varint(items + 1) if self.flexible else self.int32(items)

    def tags(self, fields: dict[int, bytes] | None = None) -> None:
        """End a structure: with its tagged fields, if it is flexible."""
        if not self.flexible:
            return
        given = fields or {}
        self.varint(len(given))
        for tag in sorted(given):
            self.varint(tag)
            self.varint(len(given[tag]))
            self._out += given[tag]

    def done(self) -> bytes:
        """Return what was written."""
        return bytes(self._out)

    def _sized(self, data: bytes | None, plain: Callable[[int], None]) -> None:
        size = _NULL if data is None else len(data)
        if self.flexible:
            self.varint(size + 1)
        else:
            plain(size)
        self._out += data or b""


class FieldReader:
    """Reads fields in order; on any bytes, each call returns or raises DataCorrupt."""

    def __init__(self, data: bytes) -> None:
        """Read the version."""
        self._data = data
        self._at = 0
        self.flexible = False
        """The caller sets it once the version is known."""
        self.version = self.int16()

    @classmethod
    def of(
        cls, data: bytes, what: str, versions: Container[int], flexible_since: int | None = None
    ) -> FieldReader:
        """Begin with a record of a known version; `flexible_since` is the first flexible one.

        Raises:
            DataCorrupt: the version is not in `versions`.
        """
        fields = cls(data)
        if fields.version not in versions:
            raise fields.unsupported(what)
        fields.flexible = flexible_since is not None and fields.version >= flexible_since
        return fields

    def int8(self) -> int:
        """Take 8 bits."""
        return int(_INT8.unpack(self.raw(1))[0])

    def int16(self) -> int:
        """Take 16 bits."""
        return int(_INT16.unpack(self.raw(2))[0])

    def int32(self) -> int:
        """Take 32 bits."""
        return int(_INT32.unpack(self.raw(4))[0])

    def int64(self) -> int:
        """Take 64 bits."""
        return int(_INT64.unpack(self.raw(8))[0])

    def varint(self) -> int:
        """Take an unsigned varint."""
        value = 0
        for shift in range(0, _VARINT_BITS_MAX, 7):
            byte = self.raw(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise self._corrupt("a varint is too long")

    def optional_string(self) -> str | None:
        """Take text, or null."""
        data = self._sized(self.int16)
        try:
            return None if data is None else data.decode()
        except UnicodeDecodeError as error:
            raise self._corrupt("text is not UTF-8") from error

    def string(self) -> str:
        """Take text that must not be null."""
        text = self.optional_string()
        if text is None:
            raise self._corrupt("text is null")
        return text

    def sized_bytes(self) -> bytes:
        """Take bytes that must not be null."""
        data = self._sized(self.int32)
        if data is None:
            raise self._corrupt("bytes are null")
        return data

    def array(self, element: Callable[[], Item]) -> tuple[Item, ...]:
        """Take the number of elements, then the elements."""
        count = self.varint() - 1 if self.flexible else self.int32()
        if not 0 <= count <= len(self._data) - self._at:
            raise self._corrupt("a number of elements cannot be right")
        return tuple(element() for _ in range(count))

    def optional_array(self, element: Callable[[], Item]) -> tuple[Item, ...] | None:
        """Take elements as `array` does, or null."""
        at = self._at
        count = self.varint() - 1 if self.flexible else self.int32()
        if count == _NULL:
            return None
        self._at = at
        return self.array(element)

    def tags(self) -> dict[int, bytes]:
        """Take the end of a structure; return its tagged fields."""
        if not self.flexible:
            return {}
        found: dict[int, bytes] = {}
        for _ in range(self.varint()):
            tag = self.varint()
            found[tag] = self.raw(self.varint())
        return found

    def end(self) -> None:
        """Check that the record has no more bytes.

        Raises:
            DataCorrupt: bytes are left over.
        """
        if self._at != len(self._data):
            raise self._corrupt("bytes are left over")

    def unsupported(self, what: str) -> DataCorrupt:
        """Return the error for an unknown version."""
        return self._corrupt(f"{what} is of an unknown version")

    def raw(self, count: int) -> bytes:
        """Take `count` bytes as they are."""
        end = self._at + count
        if count < 0 or end > len(self._data):
            raise self._corrupt("it ends too early")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def _sized(self, plain: Callable[[], int]) -> bytes | None:
        size = self.varint() - 1 if self.flexible else plain()
        return None if size == _NULL else self.raw(size)

    def _corrupt(self, why: str) -> DataCorrupt:
        return DataCorrupt(
            "a record of an internal topic cannot be read; run verify. "
            f"because={why} at={self._at} size={len(self._data)}"
        )
