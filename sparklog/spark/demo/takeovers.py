"""How long clients were without a leader, by what one of them was told.

A killed executor's broker lives on for the blink of an eye and may still acknowledge, so the first
acknowledgement after a kill proves nothing. What does is the longest silence between the kill and
the moment when somebody else is known to lead: it ends with the new leader's first word.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise


def taken_over_at_s(moment_s: float, known_s: float, acknowledged_s: Sequence[float]) -> float:
    """Return when the new leader acknowledged first.

    Args:
        moment_s: of the kill.
        known_s: when another leader was seen in the cluster's metadata.
        acknowledged_s: of all acknowledgements of the partition, in order. One at least must be
            later than `known_s`.
    """
    until_s = next(at_s for at_s in acknowledged_s if at_s > known_s)
    told_s = [at_s for at_s in acknowledged_s if moment_s < at_s <= until_s]
    silences = [
        (after_s - before_s, after_s) for before_s, after_s in pairwise([moment_s, *told_s])
    ]
    return max(silences)[1]
