"""Topics as SQL tables: one table that stands for the log, and a view per topic.

Spark gives a table's own options to no reader, but it does give those in `WITH (…)`. So a view
names its topic and root there, and Spark plans it anew for every query. It always shows the
topic's present records, unlike a temporary view `USING sparklog`, which stays as it was first
read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from pyspark.sql import SparkSession

from sparklog.core.errors import InvalidRequest
from sparklog.core.topic_names import LISTED_AS_INTERNAL
from sparklog.spark.access.log_access import shared_log
from sparklog.spark.access.log_options import parse_root
from sparklog.spark.source.schema import full_schema

TABLE: Final = "sparklog"
"""The default name of the table that stands for the log: `SELECT … FROM sparklog WITH (…)`."""

_NOT_OF_A_NAME: Final = re.compile(r"\W", re.ASCII)


def create_topic_views(
    spark: SparkSession,
    root: str | None = None,
    *,
    topics: Iterable[str] | None = None,
    database: str | None = None,
    prefix: str = "",
    table: str = TABLE,
    temporary: bool = False,
    include_headers: bool = False,
    options: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Make (or replace) a view for every topic; returns the views' names by topic.

    Args:
        `spark`: any session, Spark Connect's too.
        `root`: of the log; by default what `SPARKLOG_ROOT` says.
        `topics`: which ones; by default all but internal ones. They need not exist yet.
        `database`: where the views go, by default the current one.
        `prefix`: of every view's name.
        `table`: made unless it exists. Temporary views need it too.
        `temporary`: views for this session only.
        `include_headers`: True if the views have the column `headers`.
        `options`: source options for every view, such as `failOnDataLoss`.

    Raises:
        InvalidRequest: two topics would get one view; name the topics in several calls.
        InvalidConfig: no root.
    """
    place = parse_root(root)
    if topics is None:
        topics = sorted(t for t in shared_log(place).topics() if t not in LISTED_AS_INTERNAL)
    views = _view_names(topics, prefix)
    if database is not None:
        views = {topic: f"{database}.{view}" for topic, view in views.items()}
    create_table(spark, table)
    kind = "TEMPORARY VIEW" if temporary else "VIEW"
    columns = ", ".join(full_schema(include_headers=include_headers).names)
    for topic, view in views.items():
        given = {**(options or {}), "path": place, "subscribe": topic}
        read = f"SELECT {columns} FROM {table} WITH ({_spell(given)})"  # noqa: S608 - quoted
        spark.sql(f"CREATE OR REPLACE {kind} {view} AS {read}")
    return views


def create_table(spark: SparkSession, table: str = TABLE) -> None:
    """Make the table that stands for the log, unless it exists. It has all columns."""
    spark.sql(f"CREATE TABLE IF NOT EXISTS {table} USING sparklog OPTIONS (includeHeaders 'true')")


def _view_names(topics: Iterable[str], prefix: str) -> dict[str, str]:
    """Return a name for each topic that every catalog takes: letters, digits and '_'."""
    views: dict[str, str] = {}
    topic_of: dict[str, str] = {}
    for topic in topics:
        view = f"`{prefix}{_NOT_OF_A_NAME.sub('_', topic)}`"
        other = topic_of.setdefault(view.lower(), topic)
        if other != topic:
            raise InvalidRequest(
                "two topics would share a view; make their views with different prefixes. "
                f"view={view} topics={other},{topic}"
            )
        views[topic] = view
    return views


def _spell(options: Mapping[str, str]) -> str:
    return ", ".join(f"{_quoted(name)} = {_quoted(value)}" for name, value in options.items())


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
