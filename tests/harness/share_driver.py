"""ShareDriver: a shard of groups with members of share groups, its log and its errands."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sparklog.coordinator.consumer.messages import Part, Parts
from sparklog.coordinator.effects import CoordinatorRecord, CoordinatorResult
from sparklog.coordinator.group.shard import GroupShard
from sparklog.coordinator.share.messages import (
    InitializeShareState,
    ShareHeartbeat,
    ShareHeartbeatAnswer,
)
from sparklog.coordinator.share.settings import DEFAULTS, ShareSettings
from sparklog.core.config.group import GROUP_CONFIGS
from sparklog.core.config.model import Config
from tests.harness.coordinator_settings import group_settings

GROUP = "g"


@dataclass
class ShareTopics:
    """Topics that tests change."""

    counts: dict[str, int] = field(default_factory=lambda: {"alpha": 4, "beta": 3})
    version: int = 1

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""
        return list(self.counts)

    def find(self, name: str) -> tuple[UUID, int] | None:
        """Return the id of a topic and the number of its partitions."""
        count = self.counts.get(name)
        return None if count is None else (share_topic_id(name), count)

    def name_of(self, topic_id: UUID) -> str | None:
        """Return the name of a topic."""
        return next((name for name in self.counts if share_topic_id(name) == topic_id), None)

    def parts(self, *names: str) -> Parts:
        """Return all partitions of topics."""
        return frozenset(
            (share_topic_id(name), number)
            for name in names
            for number in range(self.counts.get(name, 0))
        )

    def set(self, name: str, count: int | None) -> None:
        """Create a topic, let it grow, or delete it."""
        self.version += 1
        if count is None:
            self.counts.pop(name, None)
        else:
            self.counts[name] = max(count, self.counts.get(name, 0))


def share_topic_id(name: str) -> UUID:
    """Return the id of a topic of `ShareTopics`."""
    return UUID(bytes=name.encode().ljust(16, b"."))


@dataclass
class ShareDriver:
    """Sends events to a shard and keeps its log; errands wait for `initialize`."""

    settings: ShareSettings = DEFAULTS
    topics: ShareTopics = field(default_factory=ShareTopics)
    configs: dict[str, Any] = field(default_factory=dict)
    now_ms: int = 1_000_000
    log: list[CoordinatorRecord] = field(default_factory=list)
    errands: list[InitializeShareState] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shard = self._new_shard()

    def submit(self, event: Callable[[GroupShard, int, int], CoordinatorResult]) -> Any:
        """Run an event and return the reply."""
        result = event(self.shard, 1, self.now_ms)
        self._take(result)
        assert [token for token, _ in result.replies] == [1]
        return result.replies[0][1]

    def send(self, member_id: str, epoch: int, **more: Any) -> ShareHeartbeatAnswer:
        """Send a heartbeat."""
        group_id = more.pop("group_id", GROUP)
        asked = ShareHeartbeat(group_id, member_id, epoch, "client", "/host", **more)
        found = self.submit(lambda s, t, n: s.share_heartbeat(asked, self.topics, t, n))
        assert isinstance(found, ShareHeartbeatAnswer)
        return found

    def join(self, member_id: str, *names: str) -> ShareHeartbeatAnswer:
        """Join, without waiting for the states of partitions."""
        return self.send(member_id, 0, names=names or ("alpha",))

    def initialize(self, only: Parts | None = None) -> set[Part]:
        """Execute all errands; with `only`, those partitions succeed. Return what succeeded."""
        errands, self.errands, succeeded = self.errands, [], set()
        for errand in errands:
            parts = [part for part in errand.parts if only is None or part in only]
            done = InitializeShareState(errand.group_id, errand.state_epoch, tuple(parts))
            self._initialized(done)
            succeeded |= set(parts)
        return succeeded

    def _initialized(self, done: InitializeShareState) -> None:
        self.submit(lambda s, t, n: s.share_initialized(done, self.topics, t, n))

    def wait(self, span_ms: int) -> None:
        """Let time pass; every deadline is handled when it is due."""
        until_ms = self.now_ms + span_ms
        while (due_ms := self.shard.next_deadline_ms) is not None and due_ms <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self._take(self.shard.expire(self.now_ms))
        self.now_ms = until_ms

    def fail_over(self, *, compacted: bool = False) -> None:
        """Let a new leader replay the log; errands of the old one are lost."""
        if compacted:
            newest = {record.key: place for place, record in enumerate(self.log)}
            self.log = [r for place, r in enumerate(self.log) if newest[r.key] == place]
        self.errands = []
        self.shard = self.replayed()
        self._take(self.shard.loaded(self.now_ms))

    def replayed(self) -> GroupShard:
        """Return a new shard after a replay of the log."""
        shard = self._new_shard()
        for offset, record in enumerate(self.log):
            shard.replay(
                record,
                offset=offset,
                timestamp_ms=self.now_ms,
                producer_id=-1,
                producer_epoch=-1,
                transactional=False,
            )
        return shard

    def _new_shard(self) -> GroupShard:
        return GroupShard(
            group_settings(),
            lambda: self.topics,
            lambda group_id: Config(GROUP_CONFIGS, self.configs),
            self.settings,
        )

    def _take(self, result: CoordinatorResult) -> None:
        self.log += result.records
        self.notes += result.notes
        for errand in result.errands:
            assert isinstance(errand, InitializeShareState)
            self.errands.append(errand)
