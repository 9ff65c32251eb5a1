"""What is said of a partition whose own log is damaged."""

from __future__ import annotations

from sparklog.core.errors import DataCorrupt, PartitionDamaged
from sparklog.log.layout import PartitionLayout


def damaged(layout: PartitionLayout, error: DataCorrupt) -> PartitionDamaged:
    """Return what clients and the operator are told. The object is named by the error."""
    return PartitionDamaged(
        "the partition's own log is damaged, so nobody can lead it; verify the log, mend or remove "
        "what is damaged, then have another leader elected or restart its broker. "
        f"partition={layout.topic}-{layout.partition} folder={layout.folder} damage={error}"
    )
