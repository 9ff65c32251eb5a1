"""Protocols with a step left out, which the models must notice."""

from __future__ import annotations

import pytest

from sparklog.log.effects import Program
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition import append
from sparklog.log.partition.append import AppendResult, Candidate


def skip_the_confirming_look(patch: pytest.MonkeyPatch) -> None:
    """Believe that an append is at the end because its object could be put."""

    def believe(
        view: PartitionView, candidate: Candidate, size_bytes: int
    ) -> Program[tuple[PartitionView, AppendResult]]:
        yield from ()
        return view, AppendResult(view.end_offset, view.end_offset + 1, repeated=False)

    patch.setattr(append, "_confirm", believe)
