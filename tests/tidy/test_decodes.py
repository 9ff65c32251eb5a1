"""Each module that unfolds bytes from outside is listed here with its bound.

Parsing or decompressing may take far more memory than the bytes have. A new place needs a line with
the reason why it cannot. Code from outside is never run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from tests.tidy.tree import Source, python_sources

UNFOLDING: Final = frozenset(
    {
        "BufferReader", "CompressedInputStream", "JSONDecoder", "decompress", "decompressobj",
        "from_avro", "from_json", "fromstring", "json.loads", "open_file", "open_stream",
        "read_csv", "read_table", "tomllib.loads",
    }
)  # fmt: skip
"""Functions of the standard library, Arrow and Spark that parse or decompress. `parse_json` is the
project's own: it bounds bytes, nesting and values itself."""
RUNNING: Final = frozenset(
    {"cloudpickle.loads", "eval", "exec", "pickle.load", "pickle.loads", "unsafe_load"}
)
"""Functions that run what they read."""

BOUNDS: Final = {
    "sparklog/console/bill.py": "the operator's own file, of bounded size",
    "sparklog/core/bounded_json.py": "bytes, nesting and values are counted first",
    "sparklog/log/manifest/manifest.py": "a checksum over the object; uncompressed columns",
    "sparklog/log/segment/arrow_ipc.py": "a buffer's claimed size against its codec's best ratio",
    "sparklog/log/segment/file.py": "the footer alone; no column is read",
    "sparklog/log/tail/timestamp_lookup.py": "the size its frames' headers allow, from a budget",
    "sparklog/log/wal/objects.py": "a checksum over the object; uncompressed columns",
    "sparklog/protocol/records/compression.py": "stops at the caller's limit",
    "sparklog/protocol/records/decoder.py": "the limit of a batch; counts against bytes",
    "sparklog/spark/demo/consumers.py": "the demo's own table",
    "sparklog/spark/demo/flights.py": "the demo's own file, with a checksum",
    "sparklog/spark/demo/follow.py": "the demo's own records",
    "sparklog/spark/demo/inspection.py": "the demo's own objects",
    "sparklog/spark/demo/scene.py": "the demo's own file, with a checksum",
    "sparklog/spark/jobs/compact.py": "reports that the job's own tasks wrote",
    "sparklog/spark/jobs/consume.py": "values within `json_text`'s size and depth",
    "sparklog/spark/jobs/produce_rows.py": "lines within `json_text`'s size and depth",
    "sparklog/spark/materialize/rows.py": "bounds of `json_text` and `avro_limits`",
    "sparklog/spark/materialize/schemas.py": "`avro_limits`, as for Avro without ids",
    "sparklog/spark/pipeline/debezium.py": "size and depth of `json_text`",
    "sparklog/spark/schedule/file.py": "the operator's own schedule",
    "sparklog/store/s3_connection.py": "the installed library's own files",
}
RUNS_ITS_OWN: Final = {
    "sparklog/spark/jobs/low_priority.py": "the function that its own driver packed, as Spark does",
}


def called(source: Source, names: frozenset[str]) -> Iterator[str]:
    """Yield those of `names` that a module calls, with or without the module before them."""
    for node in ast.walk(source.syntax()):
        if isinstance(node, ast.Call):
            text = ast.unparse(node.func)
            last = text.rpartition(".")[2]
            yield from {text, last} & names


def modules_that_call(names: frozenset[str]) -> list[str]:
    sources = python_sources("sparklog", "jobs")
    return sorted(source.path for source in sources if any(called(source, names)))


def test_each_module_that_unfolds_bytes_has_its_bound_here() -> None:
    found = modules_that_call(UNFOLDING)
    assert "sparklog/protocol/records/compression.py" in found, "the search finds calls"
    assert found == sorted(BOUNDS)


def test_modules_never_execute_bytes_from_outside() -> None:
    assert modules_that_call(RUNNING) == sorted(RUNS_ITS_OWN)
