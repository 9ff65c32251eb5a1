"""What a client fetches again and again, remembered, so that only changes are sent. Pure.

A consumer or follower of many partitions names them once. After that it sends those whose place has
changed, and is answered about those that have something new: `fetch_session`.
  Y1  requests of a session come in the order of their epochs; any other is refused, and the client
      begins anew with all its partitions
  Y4  there are so many sessions and no more: an idle one makes room, a follower goes before
      consumers, and one with many partitions before one with few, unless that is young
Source: KIP-227; Kafka's FetchSession, whose time for eviction is the same.
"""

from __future__ import annotations

from typing import Final

from sparklog.broker.fetch_session import NO_SESSION, FetchAsked, FetchSession, FetchTurn
from sparklog.core.config import INT_MAX
from sparklog.core.entropy import Entropy
from sparklog.core.errors import InvalidRequest

FIRST_EPOCH: Final = 0
"""Of a request with all partitions that asks for a session."""
LAST_EPOCH: Final = -1
"""Of a request with all partitions that asks for none."""
EVICTABLE_AFTER_S: Final = 120.0


class FetchSessionIdNotFound(InvalidRequest):
    """There is no such session, any more: begin a new one."""

    kafka_code = 70


class InvalidFetchSessionEpoch(InvalidRequest):
    """A request of the session was lost: begin a new one."""

    kafka_code = 71


class FetchSessionTopicIdError(InvalidRequest):
    """The session was begun with names and goes on with ids, or the other way round."""

    kafka_code = 106


class FetchSessions:
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

    def begin(self, asked: FetchAsked, now_s: float) -> FetchTurn:
        """Take a request in.

        Raises:
            FetchSessionIdNotFound, InvalidFetchSessionEpoch, FetchSessionTopicIdError: the client
                begins anew.
        """
        if asked.epoch not in (FIRST_EPOCH, LAST_EPOCH):
            return self._next(asked, now_s)
        self._end(asked.session_id)
        session = None
        if asked.epoch == FIRST_EPOCH and asked.parts and self._has_room(asked, now_s):
            session = FetchSession.begun(self._new_id(), next_epoch(0), asked, now_s)
            self._sessions[session.session_id] = session
        return FetchTurn(dict(asked.parts), session, answers_all=True)

    def _next(self, asked: FetchAsked, now_s: float) -> FetchTurn:
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
        session.take_in(asked)
        if not session.parts:
            self._end(session.session_id)
            return FetchTurn({}, None, answers_all=True)
        del self._sessions[session.session_id]
        self._sessions[session.session_id] = session  # the most recently used comes last
        session.epoch, session.used_s = next_epoch(session.epoch), now_s
        return FetchTurn(session.wanted(now_s), session, answers_all=False)

    def _end(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()

    def _has_room(self, asked: FetchAsked, now_s: float) -> bool:
        """Say whether there may be one more; another session goes for it if need be (Y4)."""
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
