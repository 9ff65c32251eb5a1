"""StoredObject: an object's footer, read without knowledge of its partition.

`dump-log` also shows objects that were copied from their log, and unreferenced ones.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparklog.core.errors import DataCorrupt, InvalidRequest
from sparklog.log.arrow_file import footer_metadata, footer_start
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest import MANIFEST_KEY
from sparklog.log.refresh import FOOTER_READ_BYTES
from sparklog.log.segment_footer import SEGMENT_KEY, checked_document
from sparklog.store.base import ObjectNotFound, ObjectStore


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object with its footer's metadata."""

    key: str
    size_bytes: int
    metadata: dict[str, str]

    @property
    def is_manifest(self) -> bool:
        """Return True if it is a manifest; otherwise it claims to be a segment."""
        return MANIFEST_KEY in self.metadata

    def home(self, topic: str) -> PartitionLayout:
        """Return the object's partition according to its footer, as one of `topic`.

        Raises:
            DataCorrupt: the footer is damaged, or not one of sparklog.
        """
        name = MANIFEST_KEY if self.is_manifest else SEGMENT_KEY
        document = checked_document(self.metadata, name, self.key)
        try:
            return PartitionLayout(topic, str(document["topic_id"]), int(document["partition"]))
        except (KeyError, TypeError, ValueError) as error:
            raise DataCorrupt(
                f"footer does not say where the object belongs. object={self.key}"
            ) from error


def read_object(store: ObjectStore, key: str, size_bytes: int | None = None) -> StoredObject:
    """Read an object's footer. One request, rarely two; another if the size is unknown.

    Raises:
        InvalidRequest: no such object. DataCorrupt: damaged, or not an Arrow file.
    """
    try:
        if size_bytes is None:
            size_bytes = store.head(key).size_bytes
        tail = store.get(key, -FOOTER_READ_BYTES)
        start = footer_start(tail, size_bytes, key)
        if size_bytes - start > len(tail):
            tail = store.get(key, start)
    except ObjectNotFound as error:
        raise InvalidRequest(f"no such object. root={store.url} object={key}") from error
    if len(tail) < size_bytes - start:
        raise DataCorrupt(f"object is shorter than its footer says. object={key}")
    return StoredObject(key, size_bytes, footer_metadata(tail[start - size_bytes :], key))
