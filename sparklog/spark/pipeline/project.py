"""A pipeline's folder: its spec, definitions, tables and checkpoints, and the lock of a run.

- `spark-pipeline.yml`: the spec, as Spark reads it
- `transformations/`: definitions in Python and SQL
- `storage/`: checkpoints of flows, one folder for each
- `warehouse/`, `metastore/`: tables, and Spark's list of them

Knows no Spark session.
"""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sparklog.core.bounded_json import parse_json
from sparklog.core.errors import InvalidConfig, InvalidRequest, Unavailable
from sparklog.core.topic_names import check_topic_name
from sparklog.spark.access.log_options import parse_root

SPEC_NAMES: Final = ("spark-pipeline.yml", "spark-pipeline.yaml")
SPEC_BYTES_MAX: Final = 1 << 20
LOCK_NAME: Final = ".sparklog-run"
SINKS_NAME: Final = ".sparklog-sinks.json"
SINKS_BYTES_MAX: Final = 1 << 20
EXTRA: Final = "pip install 'sparklog[pipelines]'"
_SQL_NAME: Final = re.compile(r"[A-Za-z_]\w*")

_SPEC: Final = """\
name: {name}
# Checkpoints: how far each flow has come. Keep this folder with the tables.
storage: {storage}
libraries:
  - glob:
      include: transformations/**
# Settings of Spark:
configuration:
  spark.sql.shuffle.partitions: "4"
"""
_SOURCES: Final = '''\
"""The topics that this pipeline reads. SQL reads them as `FROM STREAM name`."""

from pyspark import pipelines as dp

ROOT = {root!r}


def records(topic):
    """Return the records of a topic from its beginning, as a stream."""
    stream = spark.readStream.format("sparklog").option("path", ROOT).option("subscribe", topic)
    return stream.option("startingOffsets", "earliest").load()
{views}'''
_VIEW: Final = """

@dp.temporary_view(name={view!r})
def {function}():
    return records({topic!r})
"""
_TABLES: Final = """\
-- A row for each record, once. JSON: from_json(CAST(value AS STRING), 'id INT') has fields.
CREATE STREAMING TABLE {view}_rows AS
SELECT CAST(key AS STRING) AS key, CAST(value AS STRING) AS value, partition, offset, timestamp
FROM STREAM {view};

-- Computed anew by each update.
CREATE MATERIALIZED VIEW {view}_per_key AS
SELECT key, count(*) AS records, max(timestamp) AS newest FROM {view}_rows GROUP BY key;
"""
_SINKS: Final = '''\
"""Topics that this pipeline writes. Remove the comment signs, and create the topic first."""

# from pyspark import pipelines as dp
# from pyspark.sql import functions as sf
#
# dp.create_sink("out", "sparklog", {{"path": {root!r}, "topic": "out"}})
#
#
# @dp.append_flow(target="out", name="to_out")
# def to_out():
#     rows = spark.readStream.table("{view}_rows")
#     return rows.select("key", sf.to_json(sf.struct("key", "value")).alias("value"))
'''


@dataclass(frozen=True, slots=True)
class PipelineProject:
    """A folder with a spec."""

    folder: Path
    """Absolute."""
    name: str
    storage: str
    """A URL, as Spark takes it."""
    configuration: Mapping[str, str]

    @property
    def spec(self) -> Path:
        """Return the path of the spec."""
        return _spec_in(self.folder)

    def sinks(self) -> Mapping[str, str]:
        """Return the sinks of the last update that write to a log, with the roots of their logs.

        Raises:
            DataCorrupt, InvalidRequest: the note of the update is damaged.
        """
        path = self.folder / SINKS_NAME
        try:
            with path.open("rb") as note:
                found = parse_json(note.read(SINKS_BYTES_MAX), "note of a pipeline's sinks")
        except FileNotFoundError:
            return {}
        return _texts(found, path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs of this machine out. The lock ends with the process.

        Raises:
            Unavailable: another run has it.
        """
        with (self.folder / LOCK_NAME).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise Unavailable(
                    f"another process runs this pipeline; wait for its end. folder={self.folder}"
                ) from error
            yield


def create_project(folder: Path, root: str | None, topics: Sequence[str]) -> PipelineProject:
    """Write a project that reads topics of the log at `root`; a path is made absolute.

    Raises:
        InvalidConfig: no root.
        InvalidRequest: the folder has something in it, or no topic is given. InvalidTopic: a name
            that no topic has.
    """
    folder, root = folder.resolve(), parse_root(root)
    if not topics:
        raise InvalidRequest("which topics does it read? give --topic NAME")
    if folder.exists() and any(folder.iterdir()):
        raise InvalidRequest(f"the folder is not empty. folder={folder}")
    if ";" in str(folder):
        raise InvalidRequest(f"Derby takes no ';' in the name of a folder. folder={folder}")
    for topic in topics:
        check_topic_name(topic)
    views = {topic: view_name(topic) for topic in topics}
    made = [_VIEW.format(view=view, function=view, topic=topic) for topic, view in views.items()]
    first = next(iter(views.values()))
    definitions = folder / "transformations"
    definitions.mkdir(parents=True)
    storage = (folder / "storage").as_uri()
    (folder / SPEC_NAMES[0]).write_text(_SPEC.format(name=_yaml_text(folder.name), storage=storage))
    (definitions / "sources.py").write_text(_SOURCES.format(root=root, views="".join(made)))
    (definitions / "tables.sql").write_text(_TABLES.format(view=first))
    (definitions / "sinks.py").write_text(_SINKS.format(root=root, view=first))
    return PipelineProject(folder, folder.name, storage, {})


def view_name(topic: str) -> str:
    """Return a topic's name as one that Python and SQL take without quotes."""
    name = re.sub(r"\W", "_", topic)
    return name if _SQL_NAME.fullmatch(name) else f"t_{name}"


def read_project(folder: Path) -> PipelineProject:
    """Return the project in a folder.

    Raises:
        InvalidRequest: there is no spec, or it has other fields than Spark's specs have.
    """
    folder = folder.resolve()
    path = _spec_in(folder)
    if path.stat().st_size > SPEC_BYTES_MAX:
        raise InvalidRequest(f"the spec is too large. file={path} bytes_max={SPEC_BYTES_MAX}")
    try:
        import yaml  # noqa: PLC0415 - of the extra `pipelines`
    except ImportError as error:
        raise InvalidConfig(f"pipelines need more packages: {EXTRA}") from error
    try:
        document = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the spec is no YAML: {error} file={path}") from error
    if not isinstance(document, dict):
        raise InvalidRequest(f"the spec is no YAML mapping. file={path}")
    name, storage = document.get("name"), document.get("storage")
    if not isinstance(name, str) or not isinstance(storage, str):
        raise InvalidRequest(f"the spec needs the texts name and storage. file={path}")
    return PipelineProject(folder, name, storage, _texts(document.get("configuration"), path))


def _spec_in(folder: Path) -> Path:
    for name in SPEC_NAMES:
        if (folder / name).is_file():
            return folder / name
    raise InvalidRequest(
        f"no pipeline here: make one with sparklog pipeline init. folder={folder} "
        f"file={SPEC_NAMES[0]}"
    )


def _texts(given: Any, path: Path) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, dict) or not all(isinstance(v, str) for v in given.values()):
        raise InvalidRequest(f"names and settings take texts. file={path}")
    return {str(name): value for name, value in given.items()}


def _yaml_text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
