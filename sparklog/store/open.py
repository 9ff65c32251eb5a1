"""From a root URL to a store that retries and counts its requests.

    retrying -> probing -> hedging -> counting -> memory | file | S3
                (S3 only)  (S3 only)

Counting sits right above the store, so it sees every request that is sent, retries and hedges too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.entropy import SYSTEM_ENTROPY, Entropy
from sparklog.core.errors import InvalidConfig
from sparklog.store.base import ObjectStore
from sparklog.store.file import FileStore
from sparklog.store.hedging import HedgingStore
from sparklog.store.memory import shared_memory_store
from sparklog.store.metered import MeteredStore
from sparklog.store.retrying import RetryingStore
from sparklog.store.root_url import parse_root_url
from sparklog.store.settings import S3Access, StoreSettings


def open_store(
    root: str,
    settings: StoreSettings | None = None,
    *,
    clock: Clock = SYSTEM_CLOCK,
    entropy: Entropy = SYSTEM_ENTROPY,
    label_of: Callable[[str], str] = lambda key: "",
    environment: Mapping[str, str] | None = None,
) -> RetryingStore:
    """Open the store under `root`. Sends nothing yet.

    Args:
        `root`: a path, `file://…`, `s3://bucket/prefix` or `memory://name`.
        `settings`: limits and time-outs; the defaults fit most.
        `clock`: measures and waits.
        `entropy`: jitter and temporary names.
        `label_of`: turns a key into the label its requests are counted under.
        `environment`: where Amazon's variables are read; the process's own by default.

    Raises:
        InvalidConfig: not a root sparklog knows, or a file is there.
    """
    settings = settings if settings is not None else StoreSettings()
    parts = parse_root_url(root)
    store: ObjectStore
    if parts.scheme == "s3":
        process = os.environ  # noqa: TID251 - opening a store is an edge
        access = S3Access.from_environment(environment if environment is not None else process)
        return _s3(parts.bucket, parts.path, access, settings, clock, entropy, label_of)
    if parts.scheme == "memory":
        store = shared_memory_store(parts.path, clock)
    else:
        if Path(parts.path).is_file():
            raise InvalidConfig(f"a root is a folder, and a file is there. root={root!r}")
        store = FileStore(parts.path, fsync=settings.fsync, entropy=entropy)
    counting = MeteredStore(store, label_of)
    return RetryingStore(counting, counting.counters, settings, clock=clock, entropy=entropy)


def _s3(
    bucket: str,
    prefix: str,
    access: S3Access,
    settings: StoreSettings,
    clock: Clock,
    entropy: Entropy,
    label_of: Callable[[str], str],
) -> RetryingStore:
    # The client libraries take half a second to import, which other roots need not wait for.
    from sparklog.store.probe import ProbingStore  # noqa: PLC0415
    from sparklog.store.s3 import S3Store  # noqa: PLC0415

    counting = MeteredStore(S3Store(bucket, prefix, access, settings), label_of)
    store: ObjectStore = counting
    if settings.hedge:
        store = HedgingStore(store, settings, clock)
    if settings.probe:
        identity = f"{access.endpoint_url or 'aws'} s3://{bucket}"
        store = ProbingStore(store, identity, clock=clock, entropy=entropy)
    return RetryingStore(store, counting.counters, settings, clock=clock, entropy=entropy)
