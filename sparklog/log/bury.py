"""Burying the partitions of a deleted topic: the protocol of FORMAT.md 6, pure.

A writer that has not heard of the deletion finds the names free again once the objects are gone. So
a last manifest, the grave, is published before anything is deleted, and stays: whoever confirms an
append, or looks at the log, meets it.
"""

from __future__ import annotations

from dataclasses import replace

from sparklog.core.errors import Unavailable
from sparklog.log.effects import Protocol, put
from sparklog.log.manifest import encode
from sparklog.log.view import PartitionView, look_for_manifest

LOST_RACES_MAX = 100


def bury(view: PartitionView, nonce: str) -> Protocol[str]:
    """Make the partition one of a deleted topic; return the key of its grave. Idempotent.

    The chain is not looked at, so a damaged one is buried as well.

    Raises:
        Unavailable: too many lost races; try again later.
    """
    layout = view.layout
    for _ in range(LOST_RACES_MAX):
        view, _ = yield from look_for_manifest(view)
        version = view.manifest_name_version
        if view.manifest.deleted:
            return layout.key(layout.manifest_name(version))
        end = view.end_offset
        grave = replace(
            view.manifest,
            version=version + 1,
            nonce=nonce,
            log_start_offset=end,
            end_offset=end,
            entries=(),
            writers={},
            deleted=True,
        )
        # Created, taken or not known: the next look tells.
        yield from put(layout.key(layout.manifest_name(version + 1)), encode(grave, layout))
    raise Unavailable(
        "lost too many races for the last manifest; try again later. "
        f"partition={layout.folder} races={LOST_RACES_MAX}"
    )
