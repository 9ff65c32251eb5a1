"""Pins: they keep the objects of a partition after the log no longer names them. Pure.

A pin is a manifest outside the versions: it freezes the map from offsets to objects. The log
ignores it, but a job that deletes objects keeps those that pins name.

PINS-1: A pin counts as complete only if the log named all of its objects after the pin existed.
PINS-2: A job that deletes lists the pins after it has read the objects that the log names.

Together they leave no gap. An object never returns to the log. So a job that no longer finds it in
the log has read the log after the pinner did, and its list has the pin. No clock is involved.
Source: FORMAT.md 12.
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
    """The objects of one partition that a snapshot keeps."""

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
    """Pin the present objects of the partition. Cost without a race: two refreshes and a put.

    Raises:
        Unavailable: the log was rewritten again and again meanwhile; try later.
        DataCorrupt: the tail is damaged. TopicDeleted: the topic was deleted.
        OutcomeUnknown: the result of the put is unknown; an unused pin may be left.
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
    """Return the manifest of the objects in `view`, without writers and cleanings."""
    return replace(with_tail(view, 0), nonce=nonce, writers={}, cleaned=())


def still_named(made: Pin, view: PartitionView) -> bool:
    """Return True if the log names every object that a pin names (PINS-1)."""
    return {e.object for e in made.manifest.entries} <= {e.object for e in view.entries}


def pinned_objects(
    layout: PartitionLayout, *, but: Iterable[str] = ()
) -> Program[tuple[set[str], str]]:
    """Return the objects that pins name, except the pins `but` (their names in the folder).

    The second result is the reason not to delete any object, or ''.

    Call it after reading the objects that the log names (PINS-2). Cost: a listing, a GET per pin.
    """
    listed = yield from list_after(layout.pin_prefix, "")
    return (yield from objects_of(layout, listed, but=but))


def objects_of(
    layout: PartitionLayout, listed: Sequence[ObjectInfo], *, but: Iterable[str] = ()
) -> Program[tuple[set[str], str]]:
    """Return the objects that the pins in this listing name; and why some are unknown, or ''."""
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
    """Return the pins that no snapshot names, and that are older than the longest creation."""
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
