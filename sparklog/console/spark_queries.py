"""Pages of Spark queries: the streaming queries that write to the log, by their batches' records.

A sink stores a record of each batch under the query's id (FORMAT.md 7): its number, its time, and
the rows of each partition. Only the query's checkpoint has the offsets that it has read. So a query
that writes elsewhere is not listed; with `kafka.group.id` it is a group.

Records of a week are kept. The pages find the newest ones by their names, and read no others.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final

from sparklog.client.values import LATEST, ListedOffset
from sparklog.cluster.publication import Publication, decode
from sparklog.cluster.published import published_offsets
from sparklog.console.cluster_view import ClusterView
from sparklog.console.resources import PAGE, BoundedValues, PageResource, RowPage
from sparklog.core.errors import ResourceNotFound
from sparklog.log.effects import get, run
from sparklog.log.layout import COMMITS_PREFIX, commit_key, commit_of_key
from sparklog.store.base import ObjectStore

QUERY_ROWS: Final = 20
QUERIES_MAX: Final = 500
PARTITIONS_SHOWN: Final = 200
AT_ONCE: Final = 16
NUMBERS_BEFORE: Final = 100
"""The page looks among these for the batch before the newest one."""
_WIDER: Final = 4


def query_ids(store: ObjectStore) -> Iterator[str]:
    """Yield the ids that have records of batches, sorted. Cost: one listing for each."""
    after = ""
    while True:
        names = (commit_of_key(info.key) for info in store.list(COMMITS_PREFIX, after))
        found = next((name for name in names if name is not None), None)
        if found is None:
            return
        yield found[0]
        after = f"{COMMITS_PREFIX}{found[0]}/:"  # behind all its numbers


def newest_batches(store: ObjectStore, query: str) -> list[int]:
    """Return the numbers of the newest batch and of the one before it; fewer if there are none.

    Cost: listings, as many as the logarithm of the number of batches.
    """
    newest, step = next(_numbers(store, query, 0), None), 1
    if newest is None:
        return []
    while step:
        later = next(_numbers(store, query, newest + step), None)
        if later is None:
            step //= _WIDER
        else:
            newest, step = later, step * _WIDER
    near = [n for n in _numbers(store, query, max(0, newest - NUMBERS_BEFORE)) if n <= newest]
    return near[-2:][::-1]


def _numbers(store: ObjectStore, query: str, least: int) -> Iterator[int]:
    """Yield the numbers of a query's batches from `least` on."""
    folder = f"{COMMITS_PREFIX}{query}/"
    for info in store.list(folder, commit_key(query, least - 1) if least else ""):
        found = commit_of_key(info.key)
        if found is not None:
            yield found[1]


@dataclass(frozen=True, slots=True)
class QueryBatches:
    """A query with its newest batch and the one before, if their records are still there."""

    query: str
    newest: Publication | None
    before: Publication | None

    def document(self) -> dict[str, Any]:
        """Return it as JSON values; the rate is in records a second between the two batches."""
        if self.newest is None:
            return {"query": self.query, "batch": None, "time": None, "records": None,
                    "topics": [], "transactional": False, "rate": None}  # fmt: skip
        records = _records(self.newest)
        rate = None
        if self.before is not None and self.newest.timestamp_ms > self.before.timestamp_ms:
            rate = records / (self.newest.timestamp_ms - self.before.timestamp_ms) * 1000
        return {
            "query": self.query,
            "batch": self.newest.sequence,
            "time": self.newest.timestamp_ms,
            "records": records,
            "topics": sorted({part.topic for part in self.newest.partitions}),
            "transactional": self.newest.transactional,
            "rate": rate,
        }


def _records(batch: Publication) -> int:
    return sum(one.rows for part in batch.partitions for one in part.staged)


def _batches(store: ObjectStore, query: str) -> QueryBatches:
    found = [_batch(store, query, number) for number in newest_batches(store, query)]
    newest, before = (*found, None, None)[:2]
    return QueryBatches(query, newest, before)


def _batch(store: ObjectStore, query: str, number: int) -> Publication | None:
    """Return a batch's record; None if it was deleted. Raises DataCorrupt."""
    name = commit_key(query, number)
    data = run(get(name), store)
    return None if data is None else decode(data, name)


def list_queries(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return one page of the queries that write to the log.

    Cost: a listing for each query, and for each shown one some listings and two reads.
    """
    store = view.storage().store
    found = list(islice(query_ids(store), QUERIES_MAX + 1))
    page = RowPage.of(min(len(found), QUERIES_MAX), values.whole("page"), QUERY_ROWS)
    shown = found[:QUERIES_MAX][page.first : page.first + QUERY_ROWS]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        rows = [one.document() for one in pool.map(partial(_batches, store), shown)]
    return {**page.document(), "more": len(found) > QUERIES_MAX, "queries": rows}


def show_query(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return a query's newest batch with the offsets that it wrote, and the records since then.

    Raises:
        ResourceNotFound: no batch of the query is on record.
    """
    log, query = view.storage(), values.text("query")
    found = _batches(log.store, query) if commit_of_key(commit_key(query, 0)) else None
    if found is None or found.newest is None:
        raise ResourceNotFound(f"no batch of this query is on record. query={query}")
    written = published_offsets(log, query, found.newest.sequence)
    shown = dict(islice(sorted(written.items()), PARTITIONS_SHOWN))
    known = [place for place, offsets in shown.items() if offsets is not None]
    with view.administered() as admin:
        ends = admin.offsets(dict.fromkeys(known, LATEST)) if known else {}
    rows = []
    for place, offsets in shown.items():
        base, end = (None, None) if offsets is None else offsets
        last = ends.get(place)
        since = last.offset - end if isinstance(last, ListedOffset) and end is not None else None
        rows.append(
            {
                "topic": place.topic,
                "partition": place.partition,
                "baseOffset": base,
                "endOffset": end,
                "recordsSince": since,
            }
        )
    return {**found.document(), "partitionCount": len(written), "partitions": rows}


PAGES: Final = (
    PageResource(
        "/spark-queries", "sparkQueries", "List Spark queries that write to the log.",
        "spark_queries.html", list_queries, (PAGE,), root_only=True,
    ),
    PageResource(
        "/spark-queries/{query}", "sparkQuery", "Show the newest batch of a Spark query.",
        "spark_query.html", show_query, root_only=True,
    ),
)  # fmt: skip
