"""From a root URL to a store that retries and counts its requests.

    retrying -> probing -> hedging -> pacing -> counting -> memory | file | S3 | Azure | Google
                (not for memory and files)

Counting sits right above the store, so it sees every request that is sent, retries and hedges too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.entropy import SYSTEM_ENTROPY, Entropy
from sparklog.core.errors import InvalidConfig
from sparklog.store.azure_access import AzureAccess
from sparklog.store.base import ObjectStore
from sparklog.store.file import FileStore
from sparklog.store.hedging import HedgingStore
from sparklog.store.memory import shared_memory_store
from sparklog.store.metered import MeteredStore
from sparklog.store.request_pacer import PacingStore
from sparklog.store.retrying import RetryingStore
from sparklog.store.root_url import RootUrl, parse_root_url
from sparklog.store.settings import S3Access, StoreSettings

_CLOUDS = ("s3", "gs", "abfs")
_EXTRAS = {"gs": "gcs", "abfs": "azure"}
"""The extra of the package that holds the libraries of a scheme."""


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
        `root`: a path, `file://…`, `s3://bucket/prefix`, `gs://bucket/prefix`,
            `abfs://container@account/prefix` or `memory://name`.
        `settings`: limits and time-outs; the defaults fit most.
        `clock`: measures and waits.
        `entropy`: jitter and temporary names.
        `label_of`: turns a key into the label its requests are counted under.
        `environment`: where the clouds' variables are read; the process's own by default.

    Raises:
        InvalidConfig: not a root sparklog knows, a file is there, or a library is missing.
    """
    settings = settings if settings is not None else StoreSettings()
    parts = parse_root_url(root)
    store: ObjectStore
    if parts.scheme in _CLOUDS:
        process = os.environ  # noqa: TID251 - opening a store is an edge
        variables = environment if environment is not None else process
        store, identity = _cloud(parts, variables, settings)
    elif parts.scheme == "memory":
        store, identity = shared_memory_store(parts.path, clock), ""
    else:
        if Path(parts.path).is_file():
            raise InvalidConfig(f"a root is a folder, and a file is there. root={root!r}")
        store, identity = FileStore(parts.path, fsync=settings.fsync, entropy=entropy), ""
    counting = MeteredStore(store, label_of)
    store = counting
    if identity:
        store = PacingStore(store, settings.connections_max, counting.counters, clock)
    if identity and settings.hedge:
        store = HedgingStore(store, settings, clock)
    if identity and settings.probe:
        from sparklog.store.probe import ProbingStore  # noqa: PLC0415 - loads asyncio

        store = ProbingStore(store, identity, clock=clock, entropy=entropy)
    return RetryingStore(store, counting.counters, settings, clock=clock, entropy=entropy)


def _cloud(
    parts: RootUrl, environment: Mapping[str, str], settings: StoreSettings
) -> tuple[ObjectStore, str]:
    """Return the store, and the endpoint and bucket by which the probe knows it."""
    # The client libraries take half a second to import, which other roots need not wait for.
    bucket, prefix = parts.bucket, parts.path
    if parts.scheme == "s3":
        from sparklog.store.s3 import S3Store  # noqa: PLC0415

        s3 = S3Access.from_environment(environment)
        return S3Store(bucket, prefix, s3, settings), f"{s3.endpoint_url or 'aws'} s3://{bucket}"
    extra = _EXTRAS[parts.scheme]
    try:
        if parts.scheme == "gs":
            from sparklog.store.gcs import GcsStore  # noqa: PLC0415

            google = GcsStore(bucket, prefix, environment, settings)
            return google, f"{google.endpoint} gs://{bucket}"
        from sparklog.store.azure import AzureStore  # noqa: PLC0415
    except ModuleNotFoundError as missing:
        raise InvalidConfig(
            f"roots of {parts.scheme}:// need more libraries: pip install 'sparklog[{extra}]'. "
            f"missing={missing.name}"
        ) from missing
    azure = AzureAccess.from_environment(environment)
    endpoint = azure.endpoint_url(parts.account)
    store = AzureStore(bucket, parts.account, prefix, azure, settings)
    return store, f"{endpoint} abfs://{bucket}@{parts.account}"
