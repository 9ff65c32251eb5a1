"""Putting rewritten objects in the place of others: a change of the manifest. Pure.

A job reads entries of one manifest, writes new objects, and swaps the one for the other in the
newest. Between, the log start may have moved over some of them, or another job may have rewritten
them. What belongs together is swapped together or not at all: a tombstone must not go before what
it hides.

  W1  new entries cover the very offsets of the old ones
  W2  old entries that the newest manifest does not have, and that are not below its log start,
      were rewritten by somebody else: then nothing is swapped
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from sparklog.log.manifest import Cleaning, Entry, Manifest
from sparklog.log.manifest_change import Plan, with_tail
from sparklog.log.view import PartitionView


@dataclass(frozen=True, slots=True)
class Replacement:
    """Neighbouring entries of a manifest, and what takes their place."""

    old: tuple[Entry, ...]
    new: tuple[Entry, ...]

    @property
    def base_offset(self) -> int:
        """Return the first offset covered."""
        return self.old[0].base_offset

    @property
    def end_offset(self) -> int:
        """Return the offset after the last."""
        return self.old[-1].end_offset

    def __post_init__(self) -> None:
        """Refuse a replacement that breaks W1."""
        told = (self.new[0].base_offset, self.new[-1].end_offset)
        if told != (self.base_offset, self.end_offset):
            raise ValueError(f"replacement covers {told}, not what it replaces: {self}")


def swap(
    replacements: Sequence[Replacement],
    cleaning: Cleaning | None = None,
    expired_before_ms: int = 0,
) -> Plan:
    """Plan to publish these replacements, which are in order of offsets, and that they clean.

    Of earlier cleanings those that tell no more than another one before `expired_before_ms` are
    forgotten. The plan has nothing to do when they are published, when all lie below the log
    start, or when somebody else was faster (W2); `is_published` tells which.
    """

    def plan(view: PartitionView) -> Manifest | None:
        now = with_tail(view, 0)
        cleans = cleaning is not None and cleaning.end_offset > now.cleaned_end
        if is_published(view, replacements) and not cleans:
            return None
        entries: list[Entry] = []
        at = 0
        for one in replacements:
            while at < len(now.entries) and now.entries[at].end_offset <= one.base_offset:
                entries.append(now.entries[at])
                at += 1
            end = at
            while end < len(now.entries) and now.entries[end].base_offset < one.end_offset:
                end += 1
            left = _left(one, now.log_start_offset)
            if now.entries[at:end] != left:
                return None
            entries += [e for e in one.new if e.end_offset > now.log_start_offset] if left else []
            at = end
        entries += now.entries[at:]
        if tuple(entries) == now.entries and not cleans:
            return None
        cleaned = now.cleaned
        if cleans and cleaning is not None:
            cleaned = (*forgotten(cleaned, expired_before_ms), cleaning)
        return replace(now, entries=tuple(entries), cleaned=cleaned)

    return plan


def is_published(view: PartitionView, replacements: Sequence[Replacement]) -> bool:
    """Say whether the newest manifest names what replaces, as far as it is not below its start."""
    named = {e.object for e in view.manifest.entries}
    start = view.log_start_offset
    return all(e.object in named for one in replacements for e in one.new if e.end_offset > start)


def _left(one: Replacement, log_start_offset: int) -> tuple[Entry, ...]:
    """Return the old entries that a manifest with this log start still has."""
    return tuple(e for e in one.old if e.end_offset > log_start_offset)


def forgotten(cleaned: Sequence[Cleaning], expired_before_ms: int) -> tuple[Cleaning, ...]:
    """Return the cleanings without those that tell no more than a later, expired one."""
    expired = [c for c in cleaned if c.time_ms < expired_before_ms]
    rest = [c for c in cleaned if c.time_ms >= expired_before_ms]
    return (*expired[-1:], *rest)
