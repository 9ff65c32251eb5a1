"""What replicas need of the metadata log: the newest image, and to have it say something."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import Record

Decision = Callable[[MetadataImage], list[Record]]
"""Looks at an image and returns what to append; run again whenever the append lost its place."""


class MetadataAccess(Protocol):
    """The metadata log as this broker sees it.

    `MetadataLog` implements it. That class is in `broker/controller`, which imports this package.
    """

    @property
    def image(self) -> MetadataImage:
        """Return the newest image known here."""
        ...

    async def decide(self, decision: Decision) -> MetadataImage:
        """Append what `decision` makes of the newest image; return the image after it.

        Raises:
            SparklogError: what the decision raised.
            Unavailable, OutcomeUnknown: the store does not answer; decide again.
        """
        ...

    async def beyond(self, end_offset: int) -> MetadataImage:
        """Return the image when it ends beyond an offset. Looks for nothing by itself."""
        ...

    async def catch_up(self) -> MetadataImage:
        """Take in what others appended, and return the newest image.

        Raises:
            Unavailable, OutcomeUnknown: the store does not answer.
        """
        ...
