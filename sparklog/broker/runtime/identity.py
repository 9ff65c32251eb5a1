"""Which broker this is, and which of its lives.

What a broker tells whoever started it once it serves.
"""

from __future__ import annotations

from dataclasses import dataclass

from sparklog.log.layout import WalLayout


@dataclass(frozen=True, slots=True)
class Identity:
    """One incarnation of a broker, as registered in the metadata log."""

    broker_id: int
    incarnation: str
    """32 lower-case hex digits, new whenever the broker starts or was fenced."""
    broker_epoch: int
    """Offset of its registration: a later incarnation has a higher one."""

    @property
    def wal(self) -> WalLayout:
        """Return the names of its write-ahead log."""
        return WalLayout(self.broker_id, self.incarnation)


@dataclass(frozen=True, slots=True)
class Ready:
    """A broker that serves: where clients reach it, and which of its lives this is."""

    broker_id: int
    incarnation: int
    host: str
    """As advertised to clients."""
    port: int
    metrics_port: int | None = None
    """None: it has no metrics page."""
