"""Names of objects: the only module that builds or parses them. Source: FORMAT.md 1, WAL.md 1.

Names are keys relative to the store's root.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from sparklog.core import topic_names

NUMBER_DIGITS = 20
GENERATION_DIGITS = 10
SEGMENT_SUFFIX = ".arrow"
FOLDER_NAME_MAX = 232
"""Characters of the topic in a folder's name: with `~` and the id it has at most 255."""
COMMITS_PREFIX = "commits/"
SNAPSHOTS_PREFIX = "snapshots/"
WALS_PREFIX = "wal/"
TOPICS_PREFIX = "topics/"
RUNS_PREFIX = "runs/"
USAGE_PREFIX = "usage/"
JOB_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
"""A regular expression for the name of a scheduled job. Source: FORMAT-UPKEEP.md 13."""
METADATA_TOPIC = topic_names.METADATA_TOPIC
METADATA_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
"""Kafka's own id for its metadata topic, Uuid(0, 1)."""

_TOPIC_FOLDER = re.compile(r"topics/([A-Za-z0-9._-]{1,249})~([A-Za-z0-9_-]{22})/")
_PARTITION_FOLDER = re.compile(_TOPIC_FOLDER.pattern + r"(0|[1-9]\d{0,8})/")
_CHAIN_NAME = re.compile(r"log/(\d{20})(?:~(?!0{10})(\d{10}))?\.arrow")
_MANIFEST_NAME = re.compile(r"manifest/(\d{20})\.arrow")
_STAGED_NAME = re.compile(r"staged/[0-9a-f]{32}\.arrow")
_REWRITTEN_NAME = re.compile(r"log/(\d{20})-[0-9a-f]{32}\.arrow")
_SNAPSHOT_NAME = re.compile(r"snapshot/(\d{20})\.json")
_PIN_NAME = re.compile(r"pinned/([0-9a-f]{32})\.arrow")
_NAMED_SNAPSHOT_KEY = re.compile(r"snapshots/([A-Za-z0-9._-]{1,249})\.json")
_COMMIT_KEY = re.compile(r"commits/([A-Za-z0-9._-]{1,249})/(\d{20})\.json")
_RUN_KEY = re.compile(rf"runs/({JOB_NAME})/(\d{{20}})-(\d)\.json")
_USAGE_KEY = re.compile(r"usage/(\d{4}-\d\d-\d\d)/([0-9a-f]{32}-\d{10}|sum)\.json")
_WAL_KEY = re.compile(r"wal/(0|[1-9]\d{0,9})-([0-9a-f]{32})/(\d{20})\.arrow")


class ChainPosition(NamedTuple):
    """A place in the chain of a partition's segments; positions sort as the chain does."""

    offset: int
    """Of the next record there."""
    generation: int = 0
    """Number of fences in the chain at this offset before this position."""


def number(value: int) -> str:
    """Return `value` in the 20 digits that make names sort as numbers do."""
    return f"{value:0{NUMBER_DIGITS}d}"


def topic_folder(topic: str, topic_id: str) -> str:
    """Return the folder of one topic, with a slash at its end.

    A long name is cut, so that the folder's name fits a file system; the id distinguishes topics.
    """
    return f"topics/{topic[:FOLDER_NAME_MAX]}~{topic_id}/"


def topic_folders_prefix(topic: str) -> str | None:
    """Return what the keys of topics of this name begin with; None if other topics may share it."""
    return f"topics/{topic}~" if len(topic) < FOLDER_NAME_MAX else None


def topic_of_key(key: str) -> str:
    """Return the topic in an object's folder, or '' (labels the request counters)."""
    match = _TOPIC_FOLDER.match(key)
    return match.group(1) if match else ""


def commit_key(writer: str, sequence: int) -> str:
    """Return the name of a publication record. Source: FORMAT.md 7."""
    return f"commits/{writer}/{number(sequence)}.json"


def commit_of_key(key: str) -> tuple[str, int] | None:
    """Return writer and sequence of a publication record's key, or None for any other object."""
    match = _COMMIT_KEY.fullmatch(key)
    return (match.group(1), int(match.group(2))) if match else None


def named_snapshot_key(name: str) -> str:
    """Return the name of a named snapshot's object. Source: FORMAT.md 12."""
    return f"{SNAPSHOTS_PREFIX}{name}.json"


def name_of_snapshot_key(key: str) -> str | None:
    """Return the name of the snapshot in a key, or None for any other object."""
    match = _NAMED_SNAPSHOT_KEY.fullmatch(key)
    return match.group(1) if match else None


def runs_prefix(job: str) -> str:
    """Return the prefix of the claims of a scheduled job. Source: FORMAT.md 13."""
    return f"{RUNS_PREFIX}{job}/"


def run_key(job: str, scheduled_ms: int, attempt: int) -> str:
    """Return the name of the claim of one run; names sort as time and attempt do."""
    return f"{runs_prefix(job)}{number(scheduled_ms)}-{attempt}.json"


def run_of_key(key: str) -> tuple[str, int, int] | None:
    """Return job, time and attempt of a claim's key, or None for any other object."""
    match = _RUN_KEY.fullmatch(key)
    return (match.group(1), int(match.group(2)), int(match.group(3))) if match else None


def usage_day_prefix(day: str) -> str:
    """Return the prefix of the usage reports of a day. Source: FORMAT.md 15."""
    return f"{USAGE_PREFIX}{day}/"


def usage_key(day: str, program: str, sequence: int) -> str:
    """Return the name of a usage report; `program` is the nonce of a program that runs."""
    return f"{usage_day_prefix(day)}{program}-{sequence:010d}.json"


def usage_sum_key(day: str) -> str:
    """Return the name of the sum of a day's usage reports."""
    return f"{usage_day_prefix(day)}sum.json"


def usage_of_key(key: str) -> tuple[str, bool] | None:
    """Return the day of a usage report's key, and if it is the day's sum; None for others."""
    match = _USAGE_KEY.fullmatch(key)
    return (match.group(1), match.group(2) == "sum") if match else None


@dataclass(frozen=True, slots=True)
class WalLayout:
    """The names of one broker incarnation's write-ahead log."""

    broker_id: int
    incarnation: str
    """32 lower-case hex digits, new whenever a broker starts."""

    @property
    def folder(self) -> str:
        """Return the folder, with a slash at its end; also the prefix of every object in it."""
        return f"wal/{self.broker_id}-{self.incarnation}/"

    @property
    def broker_prefix(self) -> str:
        """Return the common prefix of the folders of all incarnations of this broker."""
        return f"{WALS_PREFIX}{self.broker_id}-"

    def key(self, sequence: int) -> str:
        """Return the store key of the object at `sequence`."""
        return f"{self.folder}{number(sequence)}{SEGMENT_SUFFIX}"

    def sequence(self, key: str) -> int | None:
        """Return the sequence in a key of this log, or None for any other object."""
        found = wal_of_key(key)
        return found[1] if found is not None and found[0] == self else None


def wal_of_key(key: str) -> tuple[WalLayout, int] | None:
    """Return the write-ahead log and the sequence of an object, or None if it belongs to none."""
    match = _WAL_KEY.fullmatch(key)
    if match is None:
        return None
    broker_id, incarnation, sequence = match.groups()
    return WalLayout(int(broker_id), incarnation), int(sequence)


@dataclass(frozen=True, slots=True)
class PartitionLayout:
    """The names of one partition's objects."""

    topic: str
    topic_id: str
    partition: int

    @property
    def folder(self) -> str:
        """Return the partition's folder, with a slash at its end."""
        return f"{topic_folder(self.topic, self.topic_id)}{self.partition}/"

    def key(self, name: str) -> str:
        """Return the store key of a name that is relative to the partition's folder."""
        return self.folder + name

    @staticmethod
    def chain_name(base_offset: int, generation: int = 0) -> str:
        """Return the relative name of the segment appended at a position of the chain."""
        after_fences = f"~{generation:0{GENERATION_DIGITS}d}" if generation else ""
        return f"log/{number(base_offset)}{after_fences}{SEGMENT_SUFFIX}"

    @staticmethod
    def rewritten_name(base_offset: int, nonce: str) -> str:
        """Return the relative name of a merged or compacted segment."""
        return f"log/{number(base_offset)}-{nonce}{SEGMENT_SUFFIX}"

    @staticmethod
    def staged_name(nonce: str) -> str:
        """Return the relative name of a staged object."""
        return f"staged/{nonce}{SEGMENT_SUFFIX}"

    @staticmethod
    def manifest_name(version: int) -> str:
        """Return the relative name of a manifest version."""
        return f"manifest/{number(version)}{SEGMENT_SUFFIX}"

    @staticmethod
    def snapshot_name(end_offset: int) -> str:
        """Return the relative name of a registry snapshot."""
        return f"snapshot/{number(end_offset)}.json"

    @staticmethod
    def pin_name(nonce: str) -> str:
        """Return the relative name of a pin of a named snapshot."""
        return f"pinned/{nonce}{SEGMENT_SUFFIX}"

    @property
    def pin_prefix(self) -> str:
        """Return the key prefix of every pin."""
        return self.folder + "pinned/"

    @property
    def chain_prefix(self) -> str:
        """Return the key prefix of everything in the log folder."""
        return self.folder + "log/"

    @property
    def manifest_prefix(self) -> str:
        """Return the key prefix of every manifest."""
        return self.folder + "manifest/"

    @property
    def snapshot_prefix(self) -> str:
        """Return the key prefix of every registry snapshot."""
        return self.folder + "snapshot/"

    def relative(self, key: str) -> str:
        """Return a key's name relative to the partition's folder."""
        return key.removeprefix(self.folder)

    def owns(self, key: str) -> bool:
        """Return True if an object has a name that belongs in a partition's folder."""
        return (
            is_data_name(self.relative(key))
            or self.manifest_version(key) is not None
            or self.snapshot_end(key) is not None
            or self.pin_nonce(key) is not None
        )

    def chain_position(self, key: str) -> ChainPosition | None:
        """Return the position in a chain segment's key, or None for any other object."""
        match = _CHAIN_NAME.fullmatch(self.relative(key))
        return ChainPosition(int(match.group(1)), int(match.group(2) or 0)) if match else None

    def rewritten_base(self, key: str) -> int | None:
        """Return the base offset in a merged segment's key, or None for any other object."""
        match = _REWRITTEN_NAME.fullmatch(self.relative(key))
        return int(match.group(1)) if match else None

    def manifest_version(self, key: str) -> int | None:
        """Return the version in a manifest's key, or None for any other object."""
        match = _MANIFEST_NAME.fullmatch(self.relative(key))
        return int(match.group(1)) if match else None

    def pin_nonce(self, key: str) -> str | None:
        """Return the nonce in a pin's key, or None for any other object."""
        match = _PIN_NAME.fullmatch(self.relative(key))
        return match.group(1) if match else None

    def snapshot_end(self, key: str) -> int | None:
        """Return the end offset in a snapshot's key, or None for any other object."""
        match = _SNAPSHOT_NAME.fullmatch(self.relative(key))
        return int(match.group(1)) if match else None


def partition_of_key(key: str) -> PartitionLayout | None:
    """Return the partition in whose folder an object is; None for a topic of a cut name, too."""
    match = _PARTITION_FOLDER.match(key)
    if match is None or len(match.group(1)) >= FOLDER_NAME_MAX:
        return None
    return PartitionLayout(match.group(1), match.group(2), int(match.group(3)))


def is_staged_name(name: str) -> bool:
    """Return True if the name, relative to the partition, is that of a staged object."""
    return _STAGED_NAME.fullmatch(name) is not None


def is_data_name(name: str) -> bool:
    """Return True if a manifest or a reference may name this object, relative to the partition.

    Names come from stored bytes, so anything else could point outside the partition's folder.
    """
    return any(p.fullmatch(name) for p in (_CHAIN_NAME, _REWRITTEN_NAME, _STAGED_NAME))
