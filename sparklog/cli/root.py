"""Which log a command works on: the one place that decides it.

Without a broker that is a root, opened here. Commands take a `Log` and never ask where it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from sparklog.cli.usage import Arguments, CommandParser, UsageError
from sparklog.cluster.open import Log
from sparklog.log.layout import topic_of_key
from sparklog.store.base import ObjectStore
from sparklog.store.open import open_store
from sparklog.store.settings import StoreSettings

ROOT_VARIABLE = "SPARKLOG_ROOT"
STORE_SETTINGS = StoreSettings(retry_deadline_s=10.0)
"""A person waits for the answer, and can ask again; a job had better try for longer."""


def add_root_options(parser: CommandParser) -> None:
    """Declare the options every command on a log has."""
    parser.add_argument(
        "--root",
        metavar="URL",
        help=f"where the log is: a folder or s3://bucket/prefix (default ${ROOT_VARIABLE})",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")


def root_of(args: Arguments) -> str | None:
    """Return the root that was given, by option or environment."""
    root = args.root if args.root is not None else os.environ.get(ROOT_VARIABLE)  # noqa: TID251 - the edge
    return root or None


@contextmanager
def opened_log(args: Arguments) -> Iterator[Log]:
    """Open the log that the options name, and close it afterwards.

    Raises:
        UsageError: no root. InvalidConfig: not a root. Unavailable: the store does not answer.
    """
    root = root_of(args)
    if root is None:
        raise UsageError(f"which log? give --root URL or set {ROOT_VARIABLE}")
    with Log(opened_store(root)) as log:
        yield log


def opened_store(root: str) -> ObjectStore:
    """Open the store under `root`.

    Raises:
        InvalidConfig: not a root.
    """
    return open_store(root, STORE_SETTINGS, label_of=topic_of_key)
