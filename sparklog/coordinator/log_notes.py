"""Log lines about groups, in Kafka's words: joins, rebalances with their reasons, removals.

Names come from clients, so control characters become escapes, and a long name is cut. So a name can
neither forge a line nor fill the log.
Source: Kafka's `GroupMetadataManager`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from sparklog.core.terminal_text import printable

CHARACTERS_MAX: Final = 250
NAMED: Final = 5
"""Most members that a line names."""


def name(text: str) -> str:
    """Return a client's word as the log may show it, in one line."""
    cut = text if len(text) <= CHARACTERS_MAX else f"{text[:CHARACTERS_MAX]}…"
    return printable(cut).replace("\n", r"\n").replace("\t", r"\t")


def preparing(group_id: str, state: str, generation: int, reason: str) -> str:
    """Return the line for the begin of a classic group's rebalance."""
    return (
        f"Preparing to rebalance group {name(group_id)} in state {state} with old generation "
        f"{generation} (reason: {reason})"
    )


def members(ids: Iterable[str]) -> str:
    """Return a few of the members' ids, and how many more there are."""
    found = sorted(ids)
    more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
    return ", ".join(map(name, found[:NAMED])) + more
