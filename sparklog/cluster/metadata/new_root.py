"""Checks that a root is new, before the first record of its metadata log begins a log there.

A bucket may be emptied while brokers serve or stand still. Brokers that start again would find no
metadata log, and begin a new cluster without a topic. Clients would go on there as if nothing had
happened. So the first append to a metadata log first looks for other objects of a log.

NEW-ROOT-1: The metadata log is the first thing in a root: every other object of a log is created
    after a record of it. So objects without a metadata log are the rest of an emptied root, or a
    part of one that is being brought back. Usage reports are no part of a log: they may be there
    first, or stay in an emptied root, and change nothing here.
NEW-ROOT-2: A broker that ends because its root was emptied has created an object there: the one
    whose put ran beside the look (`broker/wal/root_check.py`). So its restart meets NEW-ROOT-1.

An emptied root whose brokers wrote nothing since looks like a new one. The broker that begins a log
there reports it (`broker/runtime/identity.py`).

Source: FORMAT.md 8.
"""

from __future__ import annotations

from typing import Final

from sparklog.core.errors import RootEmptied
from sparklog.log.effects import Program, list_after
from sparklog.log.layout import (
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    TOPICS_PREFIX,
    WALS_PREFIX,
    PartitionLayout,
)

_METADATA: Final = PartitionLayout(METADATA_TOPIC, METADATA_TOPIC_ID, 0)


def check_root_is_new() -> Program[None]:
    """Check that no object of a log is there, or that another writer has just begun the log.

    Cost: two listings, which are empty in a new root.

    Raises:
        RootEmptied: there are objects of a log, and no metadata log.
    """
    left = yield from _first_object()
    if left is None or (yield from _has_begun()):
        return
    raise RootEmptied(
        "the root has objects of a log, and no metadata log: it was emptied, or only a part of it "
        "was brought back. No new log begins here: bring all of its objects back, or remove the "
        f"rest. object={left}"
    )


def _first_object() -> Program[str | None]:
    for prefix in (WALS_PREFIX, TOPICS_PREFIX):
        found = yield from list_after(prefix, "")
        if found:
            return found[0].key
    return None


def _has_begun() -> Program[bool]:
    for prefix in (_METADATA.chain_prefix, _METADATA.manifest_prefix):
        if (yield from list_after(prefix, "")):
            return True
    return False
