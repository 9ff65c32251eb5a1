"""Lineage: how far each flow of a pipeline has come, read from its checkpoint.

Spark keeps a folder for each flow: `_checkpoints/<names of the target>/<flow>/<version>`. It writes
the offsets of a batch before the batch, and its number into `commits` after it. A full refresh
begins a new version. Materialized views have no checkpoint: each update computes them anew.

A sink that writes to a log publishes each batch under the query's id and the batch's number. So
the log has the offsets of each batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from sparklog.cluster.log import open_log
from sparklog.cluster.published import published_offsets
from sparklog.cluster.usage_reporter import reported_usage
from sparklog.core.bounded_json import parse_json
from sparklog.store.base import ObjectStore
from sparklog.store.open import open_store

CHECKPOINTS: Final = "_checkpoints"
FILE_BYTES_MAX: Final = 4 << 20
_SCHEMES: Final = {"s3a": "s3", "s3n": "s3"}


@dataclass(frozen=True, slots=True)
class FlowProgress:
    """One flow, at the newest batch that it has planned."""

    target: str
    flow: str
    query_id: str
    batch: int | None
    """None: it has not begun."""
    committed: int | None
    """The newest batch that is complete."""
    sources: tuple[Any, ...]
    """The end of `batch` in each source, in its own form. That of a topic has the next offset of
    each partition."""
    before: tuple[Any, ...]
    """The beginning of `batch`; empty for the first batch."""
    written: Mapping[str, Mapping[str, tuple[int, int] | None]] | None = None
    """Base and end offset of `committed` in each topic and partition, if the target is a log.
    None for a partition whose log no longer has them."""

    def document(self) -> Mapping[str, Any]:
        """Return it as a JSON object."""
        return {
            "target": self.target,
            "flow": self.flow,
            "query_id": self.query_id,
            "batch": self.batch,
            "committed": self.committed,
            "from": list(self.before),
            "until": list(self.sources),
            "written": self.written,
        }


def flows_of(storage: str, sinks: Mapping[str, str] | None = None) -> list[FlowProgress]:
    """Return the flows with a checkpoint under a pipeline's storage, by target and flow.

    Args:
        storage: a URL.
        sinks: the roots of the logs that targets write to, by target.

    Raises:
        SparklogError: the storage or a log cannot be read now, or a checkpoint is damaged.
    """
    store = open_store(_store_url(storage))
    try:
        flows = list(_flows(store))
    finally:
        store.close()
    return [_with_written(one, (sinks or {}).get(one.target)) for one in flows]


def _with_written(flow: FlowProgress, root: str | None) -> FlowProgress:
    if root is None or flow.committed is None:
        return flow
    written: dict[str, dict[str, tuple[int, int] | None]] = {}
    with open_log(_store_url(root)) as log, reported_usage(log, "sparklog pipeline"):
        places = published_offsets(log, flow.query_id, flow.committed)
    for place, offsets in sorted(places.items()):
        written.setdefault(place.topic, {})[str(place.partition)] = offsets
    return replace(flow, written=written)


def _flows(store: ObjectStore) -> Iterator[FlowProgress]:
    newest: dict[tuple[str, ...], tuple[int, dict[str, set[int]]]] = {}
    for one in store.list(f"{CHECKPOINTS}/"):
        parts = one.key.split("/")
        kind = next((k for k in ("offsets", "commits") if k in parts[4:]), None)
        if kind is None or parts.index(kind) != len(parts) - 2 or not parts[-1].isdecimal():
            continue
        *parents, version = parts[1 : parts.index(kind)]
        if not version.isdecimal():
            continue
        place = tuple(parents)
        number, files = newest.get(place, (-1, {}))
        if int(version) > number:
            number, files = int(version), {}
        if int(version) == number:
            files.setdefault(kind, set()).add(int(parts[-1]))
        newest[place] = number, files
    for names, (number, files) in sorted(newest.items()):
        folder = "/".join((CHECKPOINTS, *names, str(number)))
        batch = max(files.get("offsets", ()), default=None)
        has_before = batch is not None and batch - 1 in files["offsets"]
        yield FlowProgress(
            ".".join(names[:-1]),
            names[-1],
            _query_id(store, folder),
            batch,
            max(files.get("commits", ()), default=None),
            () if batch is None else _offsets(store, folder, batch),
            _offsets(store, folder, batch - 1) if has_before and batch is not None else (),
        )


def _query_id(store: ObjectStore, folder: str) -> str:
    found = parse_json(store.get(f"{folder}/metadata", 0, FILE_BYTES_MAX), "a query's metadata")
    return str(found.get("id", ""))


def _offsets(store: ObjectStore, folder: str, batch: int) -> tuple[Any, ...]:
    """Return the offsets of a batch: after two lines of Spark's own, one of each source."""
    text = store.get(f"{folder}/offsets/{batch}", 0, FILE_BYTES_MAX)
    lines = text.decode("utf-8", "replace").splitlines()[2:]
    return tuple(None if line == "-" else _shown(parse_json(line, "an offset")) for line in lines)


def _shown(offset: Any) -> Any:
    """Return an offset without the notes that the source of topics keeps for itself."""
    if not isinstance(offset, dict):
        return offset
    return {name: value for name, value in offset.items() if not name.startswith("~")}


def _store_url(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    return f"{_SCHEMES.get(scheme, scheme)}{separator}{rest}"
