"""Putting objects in the place of a segment of the tail that cannot be read. Pure.

In the place of a fence there is nothing to put: the chain just goes on behind it.

The chain ends there for everybody who reads it, so nothing can be planned anew after a lost race:
whoever wants this has looked, and is told when the log has changed since.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sparklog.core.errors import Unavailable
from sparklog.log.effects import Protocol, get, put
from sparklog.log.manifest import Entry, encode
from sparklog.log.manifest_change import with_tail
from sparklog.log.refresh import newer_manifest
from sparklog.log.view import PartitionView
from sparklog.store.base import PutOutcome


def cover(
    view: PartitionView, entries: Sequence[Entry], *, leader_epoch: int, led: bool, nonce: str
) -> Protocol[None]:
    """Publish a manifest that goes on from the end of `view` with these entries.

    Args:
        view: of the partition, up to the segment that cannot be read.
        entries: in order, the first one where `view` ends; none if it is a fence.
        leader_epoch: the highest so far.
        led: whether only a leader may append where they end, if the chain does not go on.
        nonce: of this attempt.

    Raises:
        Unavailable: the log changed meanwhile: look again. Or a transaction is open before the
            segment, as far as the chain can be read.
    """
    taken = with_tail(view, 0)
    if taken.position != view.position:
        raise Unavailable(
            "a transaction of references is open before the damaged segment; its end may lie in "
            "that or behind it, so what it wrote cannot be told from what was aborted. Nothing was "
            f"changed. partition={view.layout.folder} offset={taken.end_offset}"
        )
    version = view.manifest_name_version + 1
    key = view.layout.key(view.layout.manifest_name(version))
    made = replace(
        taken,
        version=version,
        nonce=nonce,
        entries=(*taken.entries, *entries),
        end_offset=entries[-1].end_offset if entries else taken.end_offset,
        generation=0 if entries else taken.generation + 1,
        leader_epoch=max(leader_epoch, taken.leader_epoch),
        led=led,
    )
    data = encode(made, view.layout)
    outcome = yield from put(key, data)
    ours = outcome is PutOutcome.CREATED or (yield from get(key)) == data
    _, moved = yield from newer_manifest(replace(view, manifest_name_version=version))
    if not ours or moved:
        raise Unavailable(f"the log changed meanwhile; verify it again. object={key}")
