"""What every repair of a partition works with: what was found there, and how objects are written.

A repair changes the manifest and makes new objects; no name of the chain is ever written twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass

from sparklog.core.entropy import SYSTEM_ENTROPY, Entropy, new_nonce
from sparklog.core.types import OffsetRange
from sparklog.log.effects import Protocol, Result, run
from sparklog.log.layout import PartitionLayout
from sparklog.log.manifest import Entry
from sparklog.log.manifest_change import Plan, change
from sparklog.log.rewrite import Replacement
from sparklog.log.rewriting import Encoding
from sparklog.log.salvage import salvaged
from sparklog.log.verify import Findings
from sparklog.log.view import PartitionView
from sparklog.store.base import ObjectStore


@dataclass(frozen=True, slots=True)
class Repair:
    """One partition that is repaired, after it was verified."""

    store: ObjectStore
    found: Findings
    """What is damaged."""
    pool: Executor
    encoding: Encoding
    """Of the objects that are written."""
    dry_run: bool
    """Say what would be done, and do nothing."""
    entropy: Entropy = SYSTEM_ENTROPY

    @property
    def layout(self) -> PartitionLayout:
        """Return the names of the partition's objects."""
        return self.found.view.layout

    def nonces(self) -> Iterator[str]:
        """Yield nonces, one per object."""
        while True:
            yield new_nonce(self.entropy)

    def run(self, protocol: Protocol[Result]) -> Result:
        """Run a protocol on the partition's store."""
        return run(protocol, self.store, self.pool)

    def change(self, plan: Plan, *, over_manifests: bool = False) -> PartitionView:
        """Change the newest manifest; the plan looks again after every lost race.

        `over_manifests`: go by the newest that can be read.
        """
        view, nonce = PartitionView(self.layout), next(self.nonces())
        return self.run(change(view, plan, nonce, over_manifests=over_manifests))

    def salvaged(
        self,
        entry: Entry,
        view: PartitionView | None = None,
        given_up: Collection[OffsetRange] = (),
    ) -> Replacement:
        """Write an object with the rows that can be read of one that `view` has, or the newest.

        Batches that nobody can read stay in it, except those in `given_up`.
        """
        seen = view or self.found.view
        encoding, nonces = self.encoding, self.nonces()
        return salvaged(self.store, seen, entry, self.pool, encoding, nonces, given_up=given_up)
