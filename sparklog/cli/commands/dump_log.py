"""`sparklog dump-log`: kafka-dump-log for segments, manifests and references.

It shows the stored objects one by one without trusting the log, also damaged and unreferenced ones.
It names a damaged object and shows the rest.

`StoredObject` holds an object's footer, read without knowledge of its partition.

`dump-log` also shows objects that were copied from their log, and unreferenced ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from sparklog.cli.arguments import Arguments, CommandParser, UsageError, whole_number
from sparklog.cli.console.segment_dump import Depth, SegmentDump
from sparklog.cli.output import Output, say
from sparklog.cli.target import add_root_options, opened_log, opened_store, root_of
from sparklog.cluster.log import Log
from sparklog.core.errors import DataCorrupt, InvalidRequest, UnknownTopicOrPartition
from sparklog.log.layout import METADATA_TOPIC, METADATA_TOPIC_ID, PartitionLayout, is_data_name
from sparklog.log.manifest.manifest import MANIFEST_KEY, Manifest
from sparklog.log.manifest.manifest import decode as decode_manifest
from sparklog.log.manifest.refresh import FOOTER_READ_BYTES
from sparklog.log.segment.file import footer_metadata, footer_start
from sparklog.log.segment.footer import SEGMENT_KEY, checked_document, from_metadata
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


SHOWN_DAMAGED_MAX = 5


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--topic", help="every object of this topic's partitions")
    which.add_argument(
        "--files",
        action="append",
        metavar="OBJECT,...",
        help="these objects: paths, URLs, or names relative to the root",
    )
    parser.add_argument(
        "--partition", type=whole_number, metavar="N", help="only this partition of the topic"
    )
    parser.add_argument("--deep-iteration", action="store_true", help="print every record")
    parser.add_argument(
        "--print-data-log", action="store_true", help="print every record with key and value"
    )
    parser.add_argument(
        "--skip-record-metadata", action="store_true", help="print key and value only"
    )
    add_root_options(parser)


def run(args: Arguments, output: Output) -> int:
    """Print everything; fail at the end if anything was damaged."""
    if args.partition is not None and args.topic is None:
        raise UsageError("--partition needs --topic")
    depth = Depth(
        records=args.deep_iteration or args.print_data_log,
        data=args.print_data_log,
        record_metadata=not args.skip_record_metadata,
    )
    damaged: list[str] = []
    if args.topic is not None:
        with opened_log(args) as log:
            for layout in _layouts(log, args):
                walk = _Walk(log.store, output, depth)
                walk.partition(layout)
                damaged += walk.damaged
    else:
        names = [name.strip() for given in args.files for name in given.split(",")]
        for name in names:
            root, key = _located(name, root_of(args))
            with closing(opened_store(root)) as store:
                walk = _Walk(store, output, depth)
                walk.one(key)
            damaged += walk.damaged
    if damaged:
        shown = ", ".join(damaged[:SHOWN_DAMAGED_MAX])
        more = len(damaged) - SHOWN_DAMAGED_MAX
        raise DataCorrupt(
            "stored bytes are damaged; jobs/verify.py says what is lost and what can be done. "
            f"damaged={shown}{f' and {more} more' if more > 0 else ''}"
        )
    return 0


class _Walk:
    """Prints objects of one store."""

    def __init__(self, store: ObjectStore, output: Output, depth: Depth) -> None:
        self._store = store
        self._output = output
        self._segments = SegmentDump(store, output, depth)
        self._other_damage: list[str] = []

    @property
    def damaged(self) -> list[str]:
        """Return the damaged objects."""
        return self._other_damage + self._segments.damaged

    def partition(self, layout: PartitionLayout) -> None:
        """Print the newest readable manifest, then every segment and staged object."""
        bases = self._newest_manifest(layout)
        for info in self._store.list(layout.folder):
            name = layout.relative(info.key)
            if is_data_name(name):
                self._segment(info.key, info.size_bytes, layout, bases)
            elif not layout.owns(info.key):
                self._output.flush()
                say(f"Ignoring unknown file {info.key}")

    def one(self, key: str) -> None:
        """Print one object, also outside a log."""
        self._begin(key)
        try:
            found = read_object(self._store, key)
            layout = found.home("")
            if found.is_manifest:
                manifest = decode_manifest(self._store.get(key), layout, key)
                self._manifest(manifest)
            else:
                self._print(found, layout, {})
        except DataCorrupt as error:
            self._broken(error)

    def _newest_manifest(self, layout: PartitionLayout) -> dict[str, int]:
        """Print it; return the offset at which each object in it starts."""
        listed = [info.key for info in self._store.list(layout.manifest_prefix)]
        for key in reversed([key for key in listed if layout.manifest_version(key) is not None]):
            self._begin(key)
            try:
                manifest = decode_manifest(self._store.get(key), layout, key)
            except DataCorrupt as error:
                self._broken(error)
                continue
            except ObjectNotFound:
                continue  # an old version that was deleted meanwhile
            self._manifest(manifest)
            return {entry.object: entry.base_offset for entry in manifest.entries}
        return {}

    def _segment(
        self, key: str, size_bytes: int, layout: PartitionLayout, bases: dict[str, int]
    ) -> None:
        self._begin(key)
        try:
            self._print(read_object(self._store, key, size_bytes), layout, bases)
        except DataCorrupt as error:
            self._broken(error)
        except ObjectNotFound:
            say(f"Deleted meanwhile: {key}")

    def _print(self, found: StoredObject, layout: PartitionLayout, bases: dict[str, int]) -> None:
        segment = from_metadata(found.metadata, layout, found.key)
        for reference in segment.references:
            bases[reference.object] = segment.base_offset + reference.base
        object_base = bases.get(layout.relative(found.key), segment.base_offset)
        self._segments.print(found.key, segment, object_base, found.size_bytes)

    def _manifest(self, manifest: Manifest) -> None:
        fields = {
            "version": manifest.version,
            "logStartOffset": manifest.log_start_offset,
            "endOffset": manifest.end_offset,
            "count": len(manifest.entries),
            "nonce": manifest.nonce,
        }
        self._output.fields("Manifest", "manifest", fields)
        for name, state in manifest.writers.items():
            fields = {
                "writer": name,
                "sequence": state.sequence,
                "baseOffset": state.base_offset,
                "lastOffset": state.end_offset - 1,
                "timestamp": state.timestamp_ms,
            }
            self._output.fields("Writer", "writer", fields)
        for entry in manifest.entries:
            fields = {
                "baseOffset": entry.base_offset,
                "lastOffset": entry.end_offset - 1,
                "count": entry.rows,
                "object": entry.object,
                "objectBase": entry.base_offset,
                "size": entry.size_bytes,
                "minTimestamp": entry.min_timestamp_ms,
                "maxTimestamp": entry.max_timestamp_ms,
                "partitionLeaderEpoch": entry.leader_epoch,
                "nonce": entry.nonce,
            }
            self._output.fields("|", "manifestEntry", fields)

    def _begin(self, key: str) -> None:
        self._output.put(f"Dumping {key}", {"type": "object", "object": key})

    def _broken(self, error: DataCorrupt) -> None:
        self._output.flush()
        say(f"error: {error}")
        self._other_damage.append(str(error).rpartition("object=")[2])


def _layouts(log: Log, args: Arguments) -> Iterator[PartitionLayout]:
    if args.topic == METADATA_TOPIC:
        yield PartitionLayout(METADATA_TOPIC, METADATA_TOPIC_ID, 0)
        return
    topic = log.topic(args.topic)
    if args.partition is not None and args.partition >= topic.partitions:
        raise UnknownTopicOrPartition(
            "no such partition. "
            f"topic={topic.name} partition={args.partition} partitions={topic.partitions}"
        )
    for number in range(topic.partitions):
        if args.partition in (None, number):
            yield PartitionLayout(topic.name, topic.topic_id, number)


def _located(name: str, root: str | None) -> tuple[str, str]:
    """Return the store of an object, and the key in it, from a path, URL or name."""
    if "://" not in name and not Path(name).is_file():
        if root is None:
            raise UsageError(f"no such file: {name!r}; for a name in a log give --root, too")
        return root, name
    # Relative to the log's own root, names are those in the log.
    outside, inside, key = name.rpartition("/topics/")
    if inside:
        return outside or "/", f"topics/{key}"
    parent, _, file = name.rpartition("/")
    return parent or ("/" if name.startswith("/") else "."), file
