"""Protocols with a step left out, which the models must notice."""

from __future__ import annotations

import pytest

from sparklog.log.effects import Protocol
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition import append as append_module
from sparklog.log.partition.append import Appended, Candidate


def skip_the_confirming_look(patch: pytest.MonkeyPatch) -> None:
    """Believe that an append is at the end because its object could be put."""

    def believe(
        view: PartitionView, candidate: Candidate, size_bytes: int
    ) -> Protocol[tuple[PartitionView, Appended]]:
        yield from ()
        return view, Appended(view.end_offset, view.end_offset + 1, repeated=False)

    patch.setattr(append_module, "_confirm", believe)
