"""MetadataAccess: the metadata log as replicas use it, to read the newest image and to append."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import Record

Decision = Callable[[MetadataImage], list[Record]]
"""Returns the records to append to an image. It runs again if another append came first."""


class MetadataAccess(Protocol):
    """The metadata log as this broker sees it.

    `MetadataLog` implements it. That class is in `broker/controller`, which imports this package.
    """

    @property
    def image(self) -> MetadataImage:
        """Return the newest image known here."""
        ...

    async def decide(self, decision: Decision) -> MetadataImage:
        """Append the records that `decision` returns for the newest image; return the next image.

        Raises:
            SparklogError: the error of the decision.
            Unavailable, OutcomeUnknown: the store does not respond; decide again.
        """
        ...

    async def beyond(self, end_offset: int) -> MetadataImage:
        """Wait until the image ends beyond an offset, and return it. Sends no request itself."""
        ...

    async def catch_up(self) -> MetadataImage:
        """Replay the records that other brokers appended, and return the newest image.

        Raises:
            Unavailable, OutcomeUnknown: the store does not respond.
        """
        ...
