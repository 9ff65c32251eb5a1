"""The cluster's topics as coordinators of consumer groups need to know them."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from sparklog.cluster.image import MetadataImage
from sparklog.protocol.topic_ids import topic_id_of, uuid_of


class TopicsView:
    """All topics of one image. See `coordinator.subscribed_topics.Topics`."""

    __slots__ = ("_image",)

    def __init__(self, image: MetadataImage) -> None:
        """View `image`."""
        self._image = image

    @property
    def version(self) -> int:
        """Return a number that rises with every change."""
        return self._image.end_offset

    def names(self) -> Iterable[str]:
        """Return all names."""
        return self._image.topics

    def find(self, name: str) -> tuple[UUID, int] | None:
        """Return a topic's id and the number of its partitions."""
        topic = self._image.topics.get(name)
        return None if topic is None else (uuid_of(topic.topic_id), topic.partitions)

    def name_of(self, topic_id: UUID) -> str | None:
        """Return a topic's name."""
        return self._image.names.get(topic_id_of(topic_id))
