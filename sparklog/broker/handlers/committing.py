"""The partitions of a request that commits offsets: those that exist are asked for together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import code_of
from sparklog.broker.handlers.groups import commit_code
from sparklog.broker.handlers.partitions import partition_of, topic_of
from sparklog.cluster.image import MetadataImage, Topic
from sparklog.coordinator.offset_messages import CommitRequest, OffsetToCommit
from sparklog.core.errors import SparklogError
from sparklog.protocol.topic_ids import uuid_of


class Commits(Protocol):
    """Whoever takes commits; see `broker.group_coordinator`."""

    async def commit(self, asked: CommitRequest) -> tuple[ErrorCode, ...]:
        """Commit offsets; return a code for each."""
        ...


class Committing:
    """See the module. A topic or partition that does not exist is refused on its own."""

    def __init__(self, image: MetadataImage, topics: Any) -> None:
        """Look the partitions of a request up."""
        self._topics = topics
        self._codes: list[list[ErrorCode | None]] = []
        """None where the coordinator says."""
        offsets: list[OffsetToCommit] = []
        for asked in topics:
            topic = topic_of(image, asked)
            codes: list[ErrorCode | None] = []
            for part in asked.partitions:
                where = partition_of(topic, int(part.partition_index))
                if isinstance(where, SparklogError) or isinstance(topic, SparklogError):
                    codes.append(code_of(where if isinstance(where, SparklogError) else None))
                else:
                    codes.append(None)
                    offsets.append(_offset(topic, part))
            self._codes.append(codes)
        self.offsets = tuple(offsets)
        self._answers: Iterator[ErrorCode] = iter(())

    async def run(self, groups: Commits, asked: CommitRequest) -> None:
        """Commit what exists; where nothing does, nobody is asked, as in Kafka."""
        if not self.offsets:
            return
        try:
            self._answers = iter(await groups.commit(asked))
        except SparklogError as error:
            self._answers = iter([commit_code(error)] * len(self.offsets))

    def codes(self) -> Iterator[tuple[Any, list[tuple[int, ErrorCode]]]]:
        """Yield every topic of the request with its partitions' numbers and codes. Once."""
        for topic, codes in zip(self._topics, self._codes, strict=True):
            yield (
                topic,
                [
                    (int(part.partition_index), next(self._answers) if code is None else code)
                    for part, code in zip(topic.partitions, codes, strict=True)
                ],
            )


def _offset(topic: Topic, part: Any) -> OffsetToCommit:
    return OffsetToCommit(
        topic.name,
        int(part.partition_index),
        int(part.committed_offset),
        int(getattr(part, "committed_leader_epoch", -1)),
        part.committed_metadata or "",
        uuid_of(topic.topic_id),
    )
