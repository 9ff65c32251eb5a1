"""Which store takes the windows of a write-ahead log, as `wal.fsync` says."""

from __future__ import annotations

from sparklog.core.broker_settings import BrokerConfig
from sparklog.core.errors import InvalidConfig
from sparklog.store.base import ObjectStore


def unforced_store(store: ObjectStore, config: BrokerConfig) -> ObjectStore | None:
    """Return the store for windows that need not be on a disk when they count; None: all need to.

    Raises:
        InvalidConfig: they are not to, but the store has no disk of its own to wait for.
    """
    if config.flag("wal.fsync"):
        return None
    unforced = store.unforced()
    if unforced is None:
        raise InvalidConfig(
            "a put to object storage is on its disks when it is answered; leave wal.fsync out: "
            f"false is for roots that are folders. root={store.url}"
        )
    return unforced
