"""Root URLs: from the text that names a root to the place it names, with no character dropped.

A general URL parser cuts off what follows `#` or `?`, removes tabs and line ends, and replaces
bytes that are not UTF-8. Each of these makes two roots one log. So a root is split here, by these
rules alone:

  - text without a scheme is a path, taken as it is
  - `file://` and `file:` name an absolute path on this machine; `%41` stands for one byte
  - `memory://` names a store of this process; the rest of the text is its name, as it is
  - `s3://` and `gs://` name a bucket and a prefix of keys; `%41` stands for one byte
  - `abfs://container@account/prefix` names a container of an Azure account; the same escapes

Text that these rules cannot keep whole is refused.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from sparklog.core.errors import InvalidConfig

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_BUCKET = re.compile(r"[A-Za-z0-9._-]+")
_ACCOUNT = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)*")
_BUCKETS = ("s3", "gs")
_AZURE = ("abfs", "abfss")
_PUBLIC_SERVICES = (".dfs.core.windows.net", ".blob.core.windows.net")
_THIS_MACHINE = ("", "localhost")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class RootUrl:
    """The parts of a root: `scheme` is `file`, `memory`, `s3`, `gs` or `abfs`."""

    scheme: str
    bucket: str
    """The bucket, or Azure's container; empty for a folder or memory."""
    path: str
    """The folder, the name of the store in memory, or the prefix of the keys."""
    account: str = ""
    """Azure only: the name of the account, or the host of its service."""


def scheme_of(root: str) -> str:
    """Return the scheme of `root` in lower case; empty for a path."""
    found = _SCHEME.match(root)
    return found[1].lower() if found else ""


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


def parse_root_url(root: str) -> RootUrl:
    """Split `root` into its parts.

    Raises:
        InvalidConfig: not a root sparklog knows, or one that cannot be kept whole.
    """
    if root != root.strip():
        raise InvalidConfig(f"a root neither begins nor ends with a blank. root={root!r}")
    scheme = scheme_of(root)
    rest = root[len(scheme) + 1 :] if scheme else root
    if not scheme and root:
        return RootUrl("file", "", _without_null(root, root))
    if scheme and _CONTROLS.search(root):
        raise InvalidConfig(
            f"a root has no control characters; write them as %0A and so on. root={root!r}"
        )
    if scheme == "memory":
        return RootUrl("memory", "", rest.removeprefix("//"))
    if scheme == "file":
        return RootUrl("file", "", _folder(root, rest))
    if scheme in _BUCKETS and rest.startswith("//"):
        bucket, _, prefix = rest[2:].partition("/")
        return RootUrl(scheme, _bucket(root, bucket), _unquoted(prefix))
    if scheme in _AZURE and rest.startswith("//"):
        place, _, prefix = rest[2:].partition("/")
        container, _, account = place.partition("@")
        path = _unquoted(prefix)
        return RootUrl("abfs", _bucket(root, container), path, _account(root, account))
    raise InvalidConfig(
        "not a root sparklog knows; use a path, file://, s3://bucket/prefix, gs://bucket/prefix, "
        f"abfs://container@account/prefix or memory://. root={root!r}"
    )


def _bucket(root: str, name: str) -> str:
    if name and not _BUCKET.fullmatch(name):
        raise InvalidConfig(
            "not the name of a bucket; use letters, digits, '.', '_' and '-'. "
            f"root={root!r} bucket={name!r}"
        )
    return name


def _account(root: str, name: str) -> str:
    """Return the account of `name`, which Hadoop writes as `account.dfs.core.windows.net`."""
    if not _ACCOUNT.fullmatch(name):
        raise InvalidConfig(
            "name an account: abfs://container@account/prefix, or its service's host instead of "
            f"the account. root={root!r} account={name!r}"
        )
    for service in _PUBLIC_SERVICES:
        name = name.removesuffix(service)
    return name


def _folder(root: str, rest: str) -> str:
    if rest.startswith("//"):
        host, slash, path = rest[2:].partition("/")
        if host.lower() not in _THIS_MACHINE:
            raise InvalidConfig(
                "a file root is a folder of this machine; write file:///folder with three "
                f"slashes. root={root!r} host={host!r}"
            )
        rest = slash + path
    if not rest.startswith("/"):
        raise InvalidConfig(
            f"a file root is an absolute path; write file:///folder, or the path. root={root!r}"
        )
    return _without_null(root, _unquoted(rest))


def _unquoted(text: str) -> str:
    """Return `text` with its escapes decoded; bytes that are not UTF-8 stay apart."""
    return os.fsdecode(unquote_to_bytes(text))


def _without_null(root: str, path: str) -> str:
    if "\0" in path:
        raise InvalidConfig(f"no file system takes a null byte in a path. root={root!r}")
    return path
