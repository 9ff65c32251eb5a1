"""RecordSchema: keys and values of internal topics, declared as dataclasses.

Each begins with a version of 16 bits. The rest is encoded as in Kafka's messages, by the same
codec. A schema knows the versions that may be read, and which of them are flexible.
Source: Kafka protocol guide, protocol primitive types; KIP-482.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from sparklog.core.errors import DataCorrupt
from sparklog.protocol.messages.decoder import Cursor, Decode, Malformed, decoder
from sparklog.protocol.messages.encoder import Encode, encoder
from sparklog.protocol.messages.schema import Version

Entity = TypeVar("Entity")

_VERSION: Final = struct.Struct(">h")


def version_of(data: bytes) -> int:
    """Return the version of a key or a value; of a key it is also its kind.

    Raises:
        DataCorrupt: it is too short.
    """
    if len(data) < _VERSION.size:
        raise corrupt("a key or a value", "it ends too early", data)
    return int(_VERSION.unpack_from(data)[0])


@dataclass(frozen=True, slots=True)
class RecordSchema(Generic[Entity]):
    """A key or a value in all its versions."""

    entity: type[Entity]
    what: str
    """Its name in errors."""
    versions: Collection[int]
    flexible_since: int | None = None
    """The first flexible version; None if there is none."""

    _encoders: dict[int, tuple[bytes, Encode]] = field(default_factory=dict, init=False)
    """By version: the version's bytes, and what encodes the rest."""
    _decoders: dict[int, Decode] = field(default_factory=dict, init=False)

    def encode(self, entity: Entity, version: int) -> bytes:
        """Return the bytes of a version."""
        known = self._encoders.get(version)
        if known is None:
            known = _VERSION.pack(version), encoder(*self._of(version))
            self._encoders[version] = known
        prefix, put = known
        out = bytearray(prefix)
        put(out, entity)
        return bytes(out)

    def decode(self, data: bytes) -> Entity:
        """Return the decoded entity. On any bytes it returns, or raises `DataCorrupt`.

        Raises:
            DataCorrupt: the version is not in `versions`, or the bytes do not have its form.
        """
        version = version_of(data)
        decode = self._decoders.get(version)
        if decode is None:
            if version not in self.versions:
                raise corrupt(self.what, f"version {version} is unknown", data)
            decode = decoder(*self._of(version))
            self._decoders[version] = decode
        # A record that was written must be readable, so only its size bounds its elements.
        cursor = Cursor(data, _VERSION.size, elements_max=len(data))
        try:
            entity: Entity = decode(cursor)
        except Malformed as error:
            raise corrupt(self.what, str(error), data) from error
        if cursor.at != len(data):
            raise corrupt(self.what, "bytes are left over", data)
        return entity

    def _of(self, number: int) -> tuple[Any, Version]:
        since = self.flexible_since
        return self.entity, Version(number, since is not None and number >= since)


def corrupt(what: str, why: str, data: bytes) -> DataCorrupt:
    """Return the error for a key or a value that cannot be read."""
    return DataCorrupt(
        "a record of an internal topic cannot be read; run verify. "
        f"record=({what}) because=({why}) size={len(data)}"
    )
