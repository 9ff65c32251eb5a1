"""Which log: the root of a read or a write. An edge: the environment is read here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from sparklog.core.errors import InvalidConfig
from sparklog.store.root_url import parse_root_url, scheme_of

ROOT_VARIABLE: Final = "SPARKLOG_ROOT"


def parse_root(path: str | None, purpose: str = "read") -> str:
    """Return the root: the option `path`, or else what the environment says.

    A folder is made absolute, since tasks have working directories of their own, and `s3a://`, as
    Hadoop's client for S3 has it, means `s3://`.

    Raises:
        InvalidConfig: neither says anything, or what they say is not a root.
    """
    root = path if path is not None else os.environ.get(ROOT_VARIABLE)  # noqa: TID251 - the edge
    if root is None or not root.strip():
        raise InvalidConfig(
            f"no log to {purpose}; set the option `path` or the environment variable "
            f"{ROOT_VARIABLE} to its root, for example s3://bucket/prefix (an address of brokers "
            "is not needed and not enough)"
        )
    scheme = scheme_of(root)
    if scheme in ("s3a", "s3n"):
        root, scheme = f"s3{root[len(scheme) :]}", "s3"
    parse_root_url(root)
    # Not `abspath`: it would resolve `link/..` other than the file system does.
    return root if scheme else str(Path(root).absolute())


def refuse_memory(root: str) -> None:
    """Refuse a root that the processes of a Spark application cannot share.

    Raises:
        InvalidConfig: `memory://`.
    """
    if scheme_of(root) == "memory":
        raise InvalidConfig(
            "a log in memory lives in one process, and Spark runs several; use a folder or "
            f"s3://bucket/prefix. root={root}"
        )
