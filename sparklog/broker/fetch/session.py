"""Fetch sessions: the last answers about the partitions of each client, and the next ones. Pure.

A session remembers a client's repeated fetch, so that only changes are sent. A consumer or follower
of many partitions names them once. After that it sends those whose place has changed, and gets
answers about those that have something new.
  FETCH-SESSION-1: requests of a session come in the order of their epochs; any other is rejected,
      and the client begins anew with all its partitions
  FETCH-SESSION-2: an answer names a partition when it has records, an error, or offsets that the
      client does not have. So it always names a new one. An answer also names a partition that was
      asked for below its start, even if the client has its offsets. Such a client waits for the
      offset to go on
  FETCH-SESSION-3: a partition that had records comes last next time, so that none is left out for
      ever
  FETCH-SESSION-4: the number of sessions is limited. A new session may replace an idle one. A
      follower's may replace a consumer's, and one with many partitions one with few that is not
      young
  FETCH-SESSION-5: a follower's partition that has nothing for it rests in the session's watch. It
      is looked at when there is news of it, when it is asked for elsewhere, and once a second

Source: KIP-227; Kafka's FetchSession, whose time for eviction is the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from sparklog.broker.fetch.read import FetchedPartition
from sparklog.broker.fetch.watch import FetchSubscription
from sparklog.broker.partition.follower import FetchPosition
from sparklog.core.config.model import INT_MAX
from sparklog.core.entropy import Entropy
from sparklog.core.errors import InvalidRequest, SparklogError
from sparklog.core.types import PartitionId

NO_SESSION: Final = 0
SWEPT_EVERY_S: Final = 1.0
"""So often all partitions of a follower are looked at: it shows that it is still in sync."""
_NOT_SENT: Final = -1

TopicKey = UUID | str | None
"""A topic by its id or, before version 13, its name; None is the id of no topic."""
PartKey = tuple[TopicKey, int]


@dataclass(frozen=True, slots=True)
class RequestedPartition:
    """The partitions that a request adds, changes and drops."""

    session_id: int
    epoch: int
    by_topic_id: bool
    is_follower: bool
    parts: Mapping[PartKey, FetchPosition]
    forgotten: Collection[PartKey] = ()


@dataclass(slots=True)
class _Part:
    at: FetchPosition
    where: PartitionId | None = None
    """The partition it was when it was last looked at."""
    high_watermark: int = _NOT_SENT
    log_start_offset: int = _NOT_SENT
    unchanged: FetchedPartition | None = None
    """The answer that the client has, if the last look found no other."""

    def record(self, outcome: FetchedPartition | SparklogError) -> bool:
        """Record an answer, and return True if the client does not have it yet."""
        if outcome is self.unchanged:
            return False
        self.unchanged = None
        if isinstance(outcome, SparklogError):
            self.high_watermark = _NOT_SENT
            return True
        before = (self.high_watermark, self.log_start_offset)
        self.high_watermark = outcome.high_watermark
        self.log_start_offset = outcome.log_start_offset
        is_new = before != (outcome.high_watermark, outcome.log_start_offset)
        is_below = self.at.offset < outcome.log_start_offset
        if is_new or is_below or outcome.batches or outcome.diverging is not None:
            return True
        self.unchanged = outcome
        return False


@dataclass(slots=True)
class FetchSession:
    """The repeated fetch of one client."""

    session_id: int
    by_topic_id: bool
    is_follower: bool
    created_s: float
    used_s: float
    epoch: int
    """Of the next request."""
    parts: dict[PartKey, _Part] = field(default_factory=dict)
    keys: dict[PartitionId, PartKey] = field(default_factory=dict)
    watch: FetchSubscription | None = None
    """A follower's."""
    swept_s: float = 0.0
    """When all partitions were looked at last."""

    @classmethod
    def begun(
        cls, session_id: int, epoch: int, asked: RequestedPartition, now_s: float
    ) -> FetchSession:
        """Return a session that begins with a request; `epoch` is the next one's."""
        watch = FetchSubscription() if asked.is_follower else None
        parts = {key: _Part(at) for key, at in asked.parts.items()}
        return cls(
            session_id,
            asked.by_topic_id,
            asked.is_follower,
            now_s,
            now_s,
            epoch,
            parts,
            watch=watch,
        )

    @property
    def rank(self) -> tuple[bool, int]:
        """Return what goes first when there are too many: the lowest."""
        return self.is_follower, len(self.parts)

    def update(self, asked: RequestedPartition) -> None:
        """Apply a request's changes of partitions."""
        for key in asked.forgotten:
            part = self.parts.pop(key, None)
            if part is not None and part.where is not None and self.watch is not None:
                self.keys.pop(part.where, None)
                self.watch.forget(part.where)
        for key, at in asked.parts.items():
            part = self.parts.get(key)
            if part is None:
                self.parts[key] = _Part(at)
                continue
            part.at = at
            if part.where is not None and self.watch is not None:
                self.watch.rouse(part.where)

    def wanted(self, now_s: float) -> dict[PartKey, FetchPosition]:
        """Return what is to be looked at now: all that does not rest (FETCH-SESSION-5)."""
        watch = self.watch
        if watch is None:
            return {key: part.at for key, part in self.parts.items()}
        watch.rouse_changed()
        if now_s - self.swept_s >= SWEPT_EVERY_S:
            self.swept_s = now_s
            watch.resting.clear()
        resting = watch.resting
        return {key: part.at for key, part in self.parts.items() if part.where not in resting}

    def close(self) -> None:
        """End: the session gets no further news."""
        if self.watch is not None:
            self.watch.close()


class FetchContext:
    """One request: what to read for it, and what of that to answer."""

    def __init__(
        self,
        wanted: Mapping[PartKey, FetchPosition],
        session: FetchSession | None,
        *,
        answers_all: bool,
    ) -> None:
        """Answer a request of `session`; `answers_all` whether there is news or not."""
        self.wanted = wanted
        """In the order in which they are to be read."""
        self._session = session
        self._answers_all = answers_all

    @property
    def watch(self) -> FetchSubscription | None:
        """Return the watch that gets the news of a follower's partitions."""
        return None if self._session is None else self._session.watch

    def placed(self, key: PartKey, where: PartitionId) -> FetchedPartition | None:
        """Record the partition that is meant, and return the answer that the client has of it.

        That is None if it had news the last time. An answer with the same object says that it still
        has none.
        """
        session = self._session
        part = None if session is None else session.parts.get(key)
        if session is None or part is None:
            return None
        if session.watch is not None and part.where != where:
            part.where = where
            session.keys[where] = key
        return part.unchanged

    def roused(self, looked_at: Collection[PartitionId]) -> dict[PartKey, PartitionId]:
        """Return by their keys the partitions that were looked at, though not wanted, for news."""
        keys = {} if self._session is None else self._session.keys
        found = ((keys.get(where), where) for where in looked_at)
        return {key: where for key, where in found if key is not None}

    @property
    def session_id(self) -> int:
        """Return the session that the client may go on with; 0 for none."""
        return NO_SESSION if self._session is None else self._session.session_id

    def answers(self, key: PartKey, outcome: FetchedPartition | SparklogError) -> bool:
        """Say whether the client is to be answered about a partition. Call it once for each."""
        if self._session is None:
            return True
        part = self._session.parts.get(key)
        if part is None:  # a later request of this session has dropped it
            return False
        if isinstance(outcome, FetchedPartition) and outcome.batches:
            del self._session.parts[key]
            self._session.parts[key] = part
        return part.record(outcome) or self._answers_all


FIRST_EPOCH: Final = 0
"""Of a request with all partitions that asks for a session."""
LAST_EPOCH: Final = -1
"""Of a request with all partitions that asks for none."""
EVICTABLE_AFTER_S: Final = 120.0


class FetchSessionIdNotFound(InvalidRequest):
    """The session does not exist, or no longer: begin a new one."""

    kafka_code = 70


class InvalidFetchSessionEpoch(InvalidRequest):
    """A request of the session was lost: begin a new one."""

    kafka_code = 71


class FetchSessionTopicIdError(InvalidRequest):
    """The session was begun with names and goes on with ids, or the other way round."""

    kafka_code = 106


class FetchSessionCache:
    """The sessions of one broker."""

    def __init__(self, slots: int, entropy: Entropy) -> None:
        """Keep up to `slots` sessions; ids are drawn from `entropy`."""
        self._slots = slots
        self._entropy = entropy
        self._sessions: dict[int, FetchSession] = {}
        """Least recently used first."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """Return the partitions of all sessions."""
        return sum(len(session.parts) for session in self._sessions.values())

    def begin(self, asked: RequestedPartition, now_s: float) -> FetchContext:
        """Take a request in.

        Raises:
            FetchSessionIdNotFound, InvalidFetchSessionEpoch, FetchSessionTopicIdError: the client
                begins anew.
        """
        if asked.epoch not in (FIRST_EPOCH, LAST_EPOCH):
            return self._next(asked, now_s)
        self._end(asked.session_id)
        session = None
        if asked.epoch == FIRST_EPOCH and asked.parts and self._has_capacity(asked, now_s):
            session = FetchSession.begun(self._new_id(), next_epoch(0), asked, now_s)
            self._sessions[session.session_id] = session
        return FetchContext(dict(asked.parts), session, answers_all=True)

    def _next(self, asked: RequestedPartition, now_s: float) -> FetchContext:
        session = self._sessions.get(asked.session_id)
        if session is None:
            raise FetchSessionIdNotFound(
                f"no such fetch session; begin a new one. session_id={asked.session_id}"
            )
        if asked.epoch != session.epoch:
            raise InvalidFetchSessionEpoch(
                "a request of the fetch session was lost; begin a new one. "
                f"session_id={asked.session_id} epoch={asked.epoch} expected={session.epoch}"
            )
        if asked.by_topic_id != session.by_topic_id:
            raise FetchSessionTopicIdError(
                "a fetch session names topics as it began; begin a new one. "
                f"session_id={asked.session_id}"
            )
        session.update(asked)
        if not session.parts:
            self._end(session.session_id)
            return FetchContext({}, None, answers_all=True)
        del self._sessions[session.session_id]
        self._sessions[session.session_id] = session  # the most recently used comes last
        session.epoch, session.used_s = next_epoch(session.epoch), now_s
        return FetchContext(session.wanted(now_s), session, answers_all=False)

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def _has_capacity(self, asked: RequestedPartition, now_s: float) -> bool:
        """Return True if one more session fits, perhaps in place of another (FETCH-SESSION-4)."""
        if len(self._sessions) < self._slots:
            return True
        before_s = now_s - EVICTABLE_AFTER_S
        idle = next((s for s in self._sessions.values() if s.used_s < before_s), None)
        may_go = [
            s
            for s in self._sessions.values()
            if s.created_s < before_s or (asked.is_follower and not s.is_follower)
        ]
        weakest = idle or min(may_go, key=lambda s: s.rank, default=None)
        if weakest is None:
            return False
        if weakest is not idle and weakest.rank >= (asked.is_follower, len(asked.parts)):
            return False
        self._end(weakest.session_id)
        return True

    def _new_id(self) -> int:
        while True:
            drawn = int.from_bytes(self._entropy.random_bytes(4), "big") & INT_MAX
            if drawn != NO_SESSION and drawn not in self._sessions:
                return drawn


def next_epoch(epoch: int) -> int:
    """Return the epoch of the next request; 0 and -1 have meanings of their own."""
    return 1 if epoch == INT_MAX else epoch + 1
