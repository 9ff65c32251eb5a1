"""Many decisions in one append, each with its own error."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from sparklog.broker.metadata_access import Decision, MetadataAccess
from sparklog.cluster.image import MetadataImage
from sparklog.cluster.records import Record
from sparklog.core.errors import SparklogError

Key = TypeVar("Key", bound=Hashable)
Context = TypeVar("Context")


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

    Each is made on the image after those before it, which costs time for each that grows with the
    number of topics. For many of them there is `decide_apart`. A decision that refuses leaves the
    others alone; before that stands, the newest image is looked for, since what a client did
    through another broker may not be known here yet. An append that fails refuses all.
    `validate_only` appends nothing.
    """

    def decide(image: MetadataImage) -> _Made[Key]:
        made = _Made[Key](image)
        for key, decision in decisions.items():
            records = made.records_of(key, decision, made.image)
            made.image = made.image.applied(records, made.image.end_offset + len(records))
        return made

    return await _append(metadata, decisions, decide, validate_only=validate_only)


async def decide_apart(
    metadata: MetadataAccess,
    decisions: Mapping[Key, Callable[[Context], list[Record]]],
    begin: Callable[[MetadataImage], Context],
    *,
    validate_only: bool = False,
) -> Decided[Key]:
    """Append as `decide_each` does, for decisions about different topics.

    All are made on one image. What one has to know of those before it is in the context, which
    `begin` makes of each image that is decided on.
    """

    def decide(image: MetadataImage) -> _Made[Key]:
        made, context = _Made[Key](image), begin(image)
        for key, decision in decisions.items():
            made.records_of(key, decision, context)
        made.image = image.applied(made.records, image.end_offset + len(made.records))
        return made

    return await _append(metadata, decisions, decide, validate_only=validate_only)


class _Made(Generic[Key]):
    """What decisions came to on one image."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.records: list[Record] = []
        self.refused: dict[Key, SparklogError] = {}

    def records_of(
        self, key: Key, decision: Callable[[Context], list[Record]], context: Context
    ) -> list[Record]:
        try:
            records = decision(context)
        except SparklogError as error:
            self.refused[key] = error
            return []
        self.records += records
        return records


async def _append(
    metadata: MetadataAccess,
    keys: Collection[Key],
    decide: Callable[[MetadataImage], _Made[Key]],
    *,
    validate_only: bool,
) -> Decided[Key]:
    made = _Made[Key](metadata.image)

    def all_of(image: MetadataImage) -> list[Record]:
        nonlocal made
        made = decide(image)
        return [] if validate_only else made.records

    try:
        all_of(metadata.image)
        if made.refused:
            await metadata.catch_up()
        image = await metadata.decide(all_of)
    except SparklogError as error:
        return Decided(metadata.image, dict.fromkeys(keys, error))
    return Decided(made.image if validate_only else image, made.refused)


def refusing(error: SparklogError) -> Callable[[object], list[Record]]:
    """Return a decision that is refused whatever it is made on."""

    def decide(on: object) -> list[Record]:
        raise error

    return decide
