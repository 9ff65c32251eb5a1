"""Root URLs: from the text that names a root to the place it names, with no character dropped.

A general URL parser cuts off what follows `#` or `?`, removes tabs and line ends, and replaces
bytes that are not UTF-8. Each of these makes two roots one log. So a root is split here, by these
rules alone:

  - text without a scheme is a path, taken as it is
  - `file://` and `file:` name an absolute path on this machine; `%41` stands for one byte
  - `memory://` names a store of this process; the rest of the text is its name, as it is
  - `s3://` names a bucket and a prefix of keys; `%41` stands for one byte

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
_THIS_MACHINE = ("", "localhost")
_CONTROLS = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class RootUrl:
    """The parts of a root: `scheme` is `file`, `memory` or `s3`."""

    scheme: str
    bucket: str
    """S3 only; empty otherwise."""
    path: str
    """The folder, the name of the store in memory, or the prefix of the keys."""


def scheme_of(root: str) -> str:
    """Return the scheme of `root` in lower case; empty for a path."""
    found = _SCHEME.match(root)
    return found[1].lower() if found else ""


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
    if scheme == "s3" and rest.startswith("//"):
        bucket, _, prefix = rest[2:].partition("/")
        if bucket and not _BUCKET.fullmatch(bucket):
            raise InvalidConfig(
                "not the name of a bucket; use letters, digits, '.', '_' and '-'. "
                f"root={root!r} bucket={bucket!r}"
            )
        return RootUrl("s3", bucket, _unquoted(root, prefix))
    raise InvalidConfig(
        "not a root sparklog knows; use a path, file://, s3://bucket/prefix or memory://. "
        f"root={root!r}"
    )


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
    return _without_null(root, _unquoted(root, rest))


def _unquoted(root: str, text: str) -> str:
    """Return `text` with its escapes decoded; bytes that are not UTF-8 stay apart."""
    return os.fsdecode(unquote_to_bytes(text))


def _without_null(root: str, path: str) -> str:
    if "\0" in path:
        raise InvalidConfig(f"no file system takes a null byte in a path. root={root!r}")
    return path
