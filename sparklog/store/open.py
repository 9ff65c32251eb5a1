"""From a root URL to a store that counts its requests."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import unquote, urlsplit

from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.entropy import SYSTEM_ENTROPY, Entropy
from sparklog.core.errors import InvalidConfig
from sparklog.store.base import ObjectStore
from sparklog.store.counting import CountingStore
from sparklog.store.file import FileStore
from sparklog.store.memory import shared_memory_store


def open_store(
    root: str,
    *,
    clock: Clock = SYSTEM_CLOCK,
    entropy: Entropy = SYSTEM_ENTROPY,
    label_of: Callable[[str], str] = lambda key: "",
) -> CountingStore:
    """Open the store under `root`: a path, `file://…` or `memory://…`.

    Raises:
        InvalidConfig: not a root sparklog knows.
    """
    return CountingStore(_raw(root, clock, entropy), label_of)


def _raw(root: str, clock: Clock, entropy: Entropy) -> ObjectStore:
    parts = urlsplit(root)
    if parts.scheme == "memory":
        return shared_memory_store(parts.netloc + parts.path, clock)
    if parts.scheme == "file" or (not parts.scheme and root):
        return FileStore(unquote(parts.path) if parts.scheme else root, entropy=entropy)
    raise InvalidConfig(
        "not a root sparklog knows; use a path, file://, s3://bucket/prefix or memory://. "
        f"root={root!r}"
    )
