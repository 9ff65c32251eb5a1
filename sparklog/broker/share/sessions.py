"""Share sessions: which partitions a member of a share group fetches from this broker.

A session has a key of group and member. Each request has the epoch after the last one, so the
broker notices a request that was lost. Source: KIP-932; Kafka's `ShareSessionCache`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple
from uuid import UUID

from sparklog.coordinator.share.errors import (
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    ShareSessionNotFound,
)

OPENING_EPOCH: Final = 0
"""The epoch of a request that opens a session."""
CLOSING_EPOCH: Final = -1
"""The epoch of a request that closes a session; all that the member has acquired is released."""
EPOCH_MAX: Final = 2**31 - 1

TopicPartition = tuple[UUID, int]
"""A topic's id and a partition's number."""


class ShareSessionKey(NamedTuple):
    """The member that a session belongs to."""

    group_id: str
    member_id: str


@dataclass(slots=True, eq=False)
class ShareSession:
    """The session of one member."""

    key: ShareSessionKey
    epoch: int = 1
    """The epoch of the next request."""
    partitions: dict[TopicPartition, None] = field(default_factory=dict)
    """The partitions to fetch, those that waited longest first."""
    ended: bool = False
    """True once it is closed: the member gets no further records by it."""

    def change(self, added: Iterable[TopicPartition], forgotten: Iterable[TopicPartition]) -> None:
        """Add partitions, and forget others."""
        for where in forgotten:
            self.partitions.pop(where, None)
        self.partitions.update(dict.fromkeys(added))

    def served(self, where: TopicPartition) -> None:
        """Let the other partitions come first next time: this one had records."""
        if where in self.partitions:
            del self.partitions[where]
            self.partitions[where] = None


class ShareSessionCache:
    """The share sessions of one broker."""

    def __init__(self, sessions_max: int) -> None:
        """Begin empty; `sessions_max` is `group.share.max.share.sessions`."""
        self._sessions_max = sessions_max
        self._sessions: dict[ShareSessionKey, ShareSession] = {}

    def __len__(self) -> int:
        """Return the number of open sessions."""
        return len(self._sessions)

    def has_group(self, group_id: str) -> bool:
        """Return whether a member of a group has a session."""
        return any(key.group_id == group_id for key in self._sessions)

    def fetching(self, key: ShareSessionKey, epoch: int) -> ShareSession:
        """Return the session of a ShareFetch request; open one if the request does so.

        Raises:
            ShareSessionNotFound, InvalidShareSessionEpoch: open a session.
            ShareSessionLimitReached: the broker has too many.
        """
        if epoch != OPENING_EPOCH:
            return self.continued(key, epoch)
        if key not in self._sessions and len(self._sessions) >= self._sessions_max:
            raise ShareSessionLimitReached(
                "the broker has as many share sessions as it may; close some, or raise "
                f"group.share.max.share.sessions. sessions={len(self._sessions)}"
            )
        before = self._sessions.get(key)
        if before is not None:
            before.ended = True
        session = self._sessions[key] = ShareSession(key)
        return session

    def continued(self, key: ShareSessionKey, epoch: int) -> ShareSession:
        """Return the session of a request that opens none.

        Raises:
            ShareSessionNotFound, InvalidShareSessionEpoch: open a session.
        """
        session = self._sessions.get(key)
        if session is None:
            raise ShareSessionNotFound(
                f"the broker has no such share session; open one. member={key.member_id}"
            )
        if epoch == CLOSING_EPOCH:
            return session
        if epoch != session.epoch:
            raise InvalidShareSessionEpoch(
                "a request of the share session was lost or sent twice; open a new session. "
                f"epoch={epoch} expected={session.epoch} member={key.member_id}"
            )
        session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        return session

    def end(self, session: ShareSession) -> bool:
        """End a session; return whether it was the open one of its member."""
        session.ended = True
        is_open = self._sessions.get(session.key) is session
        if is_open:
            del self._sessions[session.key]
        return is_open
