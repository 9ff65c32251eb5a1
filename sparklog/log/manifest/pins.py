"""Pinning what a partition holds, so that its objects outlive the log's interest in them. Pure.

A pin is a manifest that no version counts: it freezes which object held which offsets. The log goes
on as if it were not there; whoever deletes objects leaves those that pins name.

  N1  a pin is taken for complete only if, after it was there, the log still named all it names
  N2  whoever deletes lists the pins after the look that told him what the log names no more

Together they leave no gap: an object leaves the log for good, so whoever finds it gone looked after
the pinner did, and lists the pin. No clock is involved. Source: FORMAT.md 12.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from sparklog.core.errors import DataCorrupt, Unavailable
from sparklog.log.effects import Program, Range, create, delete, get_many, list_after
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest import manifest as manifests
from sparklog.log.manifest.change import with_tail
from sparklog.log.manifest.manifest import Manifest
from sparklog.log.manifest.refresh import refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.store.base import ObjectInfo

LOST_RACES_MAX = 20
"""Each is lost to a change of the manifest that took objects out of the log meanwhile."""


@dataclass(frozen=True, slots=True)
class Pin:
    """What is kept of one partition."""

    layout: PartitionLayout
    manifest: Manifest

    @property
    def nonce(self) -> str:
        """Return what names it."""
        return self.manifest.nonce

    @property
    def view(self) -> PartitionView:
        """Return the partition as it was, to read from."""
        return PartitionView(self.layout, self.manifest)


def pin(view: PartitionView, nonces: Iterator[str]) -> Program[Pin]:
    """Pin what the partition holds now. Two looks and a put when nothing comes between.

    Raises:
        Unavailable: the log was rewritten time and again meanwhile; try later.
        DataCorrupt: the tail is damaged. TopicDeleted: so it is.
        OutcomeUnknown: the store does not tell; a pin that nothing names may be left.
    """
    layout = view.layout
    view = yield from refresh(view)
    for _ in range(LOST_RACES_MAX):
        made = Pin(layout, frozen(view, next(nonces)))
        key = layout.key(layout.pin_name(made.nonce))
        yield from create(key, manifests.encode(made.manifest, layout))
        view = yield from refresh(view)
        if still_named(made, view):
            return made
        yield from delete(key)
    raise Unavailable(
        "the log was rewritten time and again while it was pinned; try again later. "
        f"partition={layout.folder} races={LOST_RACES_MAX}"
    )


def frozen(view: PartitionView, nonce: str) -> Manifest:
    """Return the manifest that says what `view` shows, and nothing of who wrote it."""
    return replace(with_tail(view, 0), nonce=nonce, writers={}, cleaned=())


def still_named(made: Pin, view: PartitionView) -> bool:
    """Say whether the log names every object that a pin names (N1)."""
    return {e.object for e in made.manifest.entries} <= {e.object for e in view.entries}


def pinned_objects(
    layout: PartitionLayout, *, but: Iterable[str] = ()
) -> Program[tuple[set[str], str]]:
    """Return the objects that pins name, but for the pins `but` (their names in the folder).

    And what forbids to delete any, or ''.

    To be asked after the look that says what the log names (N2). Cost: a listing, a GET per pin.
    """
    listed = yield from list_after(layout.pin_prefix, "")
    return (yield from objects_of(layout, listed, but=but))


def objects_of(
    layout: PartitionLayout, listed: Sequence[ObjectInfo], *, but: Iterable[str] = ()
) -> Program[tuple[set[str], str]]:
    """Return what the pins in this listing name, and why that is not all, or ''."""
    dropped = set(but)
    keys = [
        info.key
        for info in listed
        if layout.pin_nonce(info.key) is not None and layout.relative(info.key) not in dropped
    ]
    named: set[str] = set()
    for key, data in zip(keys, (yield from _read(keys)), strict=True):
        if data is None:
            continue  # dropped meanwhile
        try:
            named |= {e.object for e in manifests.decode(data, layout, key).entries}
        except DataCorrupt as error:
            return set(), f"a pin cannot be read, so nothing is deleted: {error}"
    return named, ""


def read_pin(layout: PartitionLayout, nonce: str) -> Program[Pin]:
    """Return a pin.

    Raises:
        DataCorrupt: it is damaged or missing.
    """
    key = layout.key(layout.pin_name(nonce))
    (data,) = yield from _read([key])
    if data is None:
        raise DataCorrupt(f"a pin that a snapshot names is missing; run verify. object={key}")
    return Pin(layout, manifests.decode(data, layout, key))


def left_pins(
    layout: PartitionLayout, listed: Iterable[ObjectInfo], named: Iterable[str], before_ms: int
) -> list[ObjectInfo]:
    """Return the pins that no snapshot names and that are older than any creation takes."""
    known = set(named)
    return [
        info
        for info in listed
        if (nonce := layout.pin_nonce(info.key)) is not None
        and nonce not in known
        and info.modified_ms < before_ms
    ]


def _read(keys: Sequence[str]) -> Program[list[bytes | None]]:
    if not keys:
        return []
    return (yield from get_many(tuple(Range(key) for key in keys)))
