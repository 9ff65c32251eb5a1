"""What verification finds, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from sparklog.core.types import NO_TIMESTAMP_MS


class DamageKind(StrEnum):
    """What is damaged, which says what can be done about it (`mend`)."""

    MANIFEST = "manifest"
    """A version of the manifest; the one before it is used."""
    SEGMENT = "segment"
    """An object that the log names: some of its records cannot be read."""
    CHAIN = "chain"
    """A segment of the tail that says nothing of itself: nothing from it on can be reached."""
    UNREAD = "unread"
    """A producer's batch that the object keeps as it came, and that nobody can read. The object is
    whole."""
    INDEX = "index"
    """What tells which keys an object does not have. Its records can be read."""
    HINT = "hint"
    """Something that the log itself tells as well."""
    PIN = "pin"
    """What a named snapshot has; the log is not concerned."""
    EPOCH = "epoch"
    """Leader epochs fall. No object is damaged, so it is unclear what was written wrong."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Something that is not as the format says."""

    object: str
    """The object's key, or the partition's folder."""
    what: str
    lost_base: int = 0
    """Offsets [lost_base, lost_end) cannot be read; equal when no record is lost."""
    lost_end: int = 0
    kind: DamageKind = DamageKind.SEGMENT
    rows: int | None = 0
    """Records lost; None when nothing tells."""
    min_timestamp_ms: int = NO_TIMESTAMP_MS
    """The times of the records lost; -1 when nothing tells."""
    max_timestamp_ms: int = NO_TIMESTAMP_MS
    unreachable_end: int = 0
    """Of a CHAIN: offsets from `lost_end` to here are whole and cannot be reached; 0: none."""
    end_known: bool = True
    """Of a CHAIN: whether anything tells where the segment ends; else `lost_end` is a guess."""


@dataclass(frozen=True, slots=True)
class Verified:
    """What was found in a partition."""

    log_start_offset: int = 0
    end_offset: int = 0
    objects: int = 0
    rows: int = 0
    size_bytes: int = 0
    damages: tuple[Damage, ...] = ()
    orphans: int = 0
    """Objects that nothing names; retention collects them."""
    foreign: tuple[str, ...] = field(default=())
    """Keys of objects that are none of the format's."""
