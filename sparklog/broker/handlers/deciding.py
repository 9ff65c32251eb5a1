"""Many decisions in one append: each on the image that those before make, each with its error."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from sparklog.broker.metadata_access import Decision, MetadataAccess
from sparklog.cluster.image import MetadataImage
from sparklog.cluster.records import Record
from sparklog.core.errors import SparklogError

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Decided(Generic[Key]):
    """What came of it."""

    image: MetadataImage
    """After all of it; the image as it would be, if nothing was to be changed."""
    refused: Mapping[Key, SparklogError]


async def decide_each(
    metadata: MetadataAccess, decisions: Mapping[Key, Decision], *, validate_only: bool = False
) -> Decided[Key]:
    """Append what every decision makes of the newest image, all at once.

    A decision that refuses leaves the others alone; before that stands, the newest image is looked
    for, since what a client did through another broker may not be known here yet. An append that
    fails refuses all. `validate_only` appends nothing.
    """
    refused: dict[Key, SparklogError] = {}
    would_be = metadata.image

    def all_of(image: MetadataImage) -> list[Record]:
        nonlocal would_be
        refused.clear()
        records: list[Record] = []
        for key, decision in decisions.items():
            try:
                made = decision(image)
            except SparklogError as error:
                refused[key] = error
                continue
            records += made
            image = image.applied(made, image.end_offset + len(made))
        would_be = image
        return [] if validate_only else records

    try:
        all_of(metadata.image)
        if refused:
            await metadata.catch_up()
        image = await metadata.decide(all_of)
    except SparklogError as error:
        return Decided(metadata.image, dict.fromkeys(decisions, error))
    return Decided(would_be if validate_only else image, refused)


def refusing(error: SparklogError) -> Callable[[MetadataImage], list[Record]]:
    """Return a decision that is refused whatever the image."""

    def decide(image: MetadataImage) -> list[Record]:
        raise error

    return decide
