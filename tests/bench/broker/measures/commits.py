"""The two kinds of commit, each beside the peer's only one.

Kafka acknowledges records that its in-sync brokers have in memory, as `sparklog.commit=memory`
does. The default, `storage`, waits until the store has them too. With each setting the store alone
commits a topic with one replica.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.bench.common.side import Side

COMMITS = ("memory", "storage")


def commits_of(side: Side, replicas: int) -> Iterator[tuple[tuple[str, ...], Mapping[str, str]]]:
    """Yield how a side is measured: the endings of the titles a run counts for, and the configs."""
    if replicas == 1:
        yield ("",), {}
    elif side.name != "sparklog":
        yield tuple(ending(commit) for commit in COMMITS), {}
    else:
        for commit in COMMITS:
            yield (ending(commit),), {"sparklog.commit": commit}


def ending(commit: str) -> str:
    """Return how titles of this kind of commit end."""
    return f", commit={commit}"
