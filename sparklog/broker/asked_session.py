"""A follower's side of a fetch session: what its next request need not say again. Pure.

See `fetch_sessions` for the leader's side.
  Z1  after a request whose answer was not taken in nobody knows what the leader remembers: the next
      one begins a new session, and names the old one so that the leader drops it
Source: KIP-227; Kafka's FetchSessionHandler.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparklog.broker.fetch_at import FetchAt
from sparklog.broker.fetch_session import NO_SESSION
from sparklog.broker.fetch_sessions import FIRST_EPOCH, next_epoch
from sparklog.core.types import PartitionId


@dataclass(frozen=True, slots=True)
class SessionAsk:
    """What the next request says."""

    session_id: int
    epoch: int
    changed: Mapping[PartitionId, FetchAt]
    """All partitions, or those that are new or whose place has changed."""
    forgotten: Sequence[PartitionId]


class AskedSession:
    """The session that one follower has with one leader."""

    def __init__(self) -> None:
        """Begin without one."""
        self._session_id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self._known: dict[PartitionId, FetchAt] = {}

    def ask(self, wanted: Mapping[PartitionId, FetchAt]) -> SessionAsk:
        """Return what to say so that the leader reads `wanted`."""
        known, self._known = self._known, dict(wanted)
        if self._epoch == FIRST_EPOCH:
            return SessionAsk(self._session_id, FIRST_EPOCH, self._known, ())
        changed = {
            where: at
            for where, at in wanted.items()
            if (before := known.get(where)) is not at and before != at
        }
        forgotten = [where for where in known if where not in wanted]
        return SessionAsk(self._session_id, self._epoch, changed, forgotten)

    def answered(self, session_id: int) -> None:
        """Take in the answer to what was asked; the leader may have made a session, or ended it."""
        self._epoch = FIRST_EPOCH if session_id == NO_SESSION else next_epoch(self._epoch)
        self._session_id = session_id

    def lost(self) -> None:
        """Take in that there was no answer, or none that was understood (Z1)."""
        self._epoch = FIRST_EPOCH
