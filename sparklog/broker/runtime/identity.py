"""Identity: a broker's id and its incarnation.

Ready: the addresses that a broker reports to its starter once it serves.
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
    """Offset of its registration in the metadata log; a later incarnation has a higher one."""

    @property
    def began_log(self) -> bool:
        """Return True if the log began with this registration, behind the cluster's record."""
        return self.broker_epoch == 1

    @property
    def wal(self) -> WalLayout:
        """Return the layout of its write-ahead log."""
        return WalLayout(self.broker_id, self.incarnation)


@dataclass(frozen=True, slots=True)
class Ready:
    """A broker that serves: its addresses and its incarnation."""

    broker_id: int
    incarnation: int
    """The broker epoch of this incarnation."""
    host: str
    """As advertised to clients."""
    port: int
    metrics_port: int | None = None
    """None: it has no metrics page."""
    cluster_id: str = ""
    began_log: bool = False
    """The root had no log, and this broker began one."""


def new_log_text(cluster_id: str) -> str:
    """Return what a broker did in a root that was empty, perhaps by mistake."""
    return f"began a new log, because the root was empty; cluster_id={cluster_id}"
