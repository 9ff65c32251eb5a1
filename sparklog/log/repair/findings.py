"""Values that a verification returns: damages, and a summary of a partition."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from sparklog.core.types import NO_TIMESTAMP_MS


class DamageKind(StrEnum):
    """The kind of a damage, which decides the possible repairs (`Repairer.repair_all`)."""

    MANIFEST = "manifest"
    """A version of the manifest; the one before it is used."""
    SEGMENT = "segment"
    """An object that the log names: some of its records cannot be read."""
    CHAIN = "chain"
    """A segment of the tail with an unreadable footer: no offset from it on can be reached."""
    UNREAD = "unread"
    """An unreadable producer's batch, which the object keeps in its wire bytes. The object is
    whole."""
    INDEX = "index"
    """The filter of an object's keys. Its records can be read."""
    HINT = "hint"
    """A hint: the log itself has the same data."""
    PIN = "pin"
    """A pin of a named snapshot; the log does not depend on it."""
    EPOCH = "epoch"
    """Leader epochs fall. No object is damaged, so it is unclear which entry is wrong."""


@dataclass(frozen=True, slots=True)
class Damage:
    """A deviation from the format."""

    object: str
    """The object's key, or the partition's folder."""
    what: str
    lost_base: int = 0
    """Offsets [lost_base, lost_end) cannot be read; equal if no record is lost."""
    lost_end: int = 0
    kind: DamageKind = DamageKind.SEGMENT
    rows: int | None = 0
    """Number of lost records; None if unknown."""
    min_timestamp_ms: int = NO_TIMESTAMP_MS
    """The times of the lost records; -1 if unknown."""
    max_timestamp_ms: int = NO_TIMESTAMP_MS
    unreachable_end: int = 0
    """Of a CHAIN: offsets from `lost_end` to here are whole but cannot be reached; 0: none."""
    end_known: bool = True
    """Of a CHAIN: True if the segment's end is known; else `lost_end` is a guess."""


@dataclass(frozen=True, slots=True)
class Verified:
    """The summary of a verified partition."""

    log_start_offset: int = 0
    end_offset: int = 0
    objects: int = 0
    rows: int = 0
    size_bytes: int = 0
    damages: tuple[Damage, ...] = ()
    orphans: int = 0
    """Objects that nothing names; retention deletes them."""
    foreign: tuple[str, ...] = field(default=())
    """Keys of objects that do not belong to the format."""
