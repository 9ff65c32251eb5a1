"""Pages of SQL: an editor with the session's history, a result, and a search by any field.

A query only reads, so every role may run one. At brokers it reads what the ACLs of the console's
principal allow.
"""

from __future__ import annotations

import json
import math
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote

import pyarrow as pa

from sparklog.console.cluster_view import ClusterView
from sparklog.console.payloads import PREVIEW_BYTES, shown_payload
from sparklog.console.query_runs import MEMORY_BYTES, THREADS, QueryCost, QueryRun
from sparklog.console.record_pages import time_of
from sparklog.console.resources import (
    PAGE,
    BoundedValues,
    ChangeAction,
    ChangeDone,
    ConsoleRole,
    FieldSpec,
    PageResource,
    RowPage,
)
from sparklog.core.errors import InvalidRequest
from sparklog.sql.decoded_views import literal, quoted
from sparklog.sql.engine import QueryLimits
from sparklog.sql.result_values import json_value

STATEMENT_MAX: Final = 32 * 1024
RESULT_ROWS: Final = 100
HISTORY_SHOWN: Final = 50
ROWS_MAX: Final = 10_000
SECONDS_MAX: Final = 600

STATEMENT = FieldSpec("statement", "one statement of SQL that reads", length_max=STATEMENT_MAX)
RUN = FieldSpec("run", "the id of a run", length_max=64)
LIMITS: Final = (
    FieldSpec(
        "rows", "rows of the result", "integer", default="1000", least=1, most=ROWS_MAX
    ),
    FieldSpec(
        "seconds", "the longest time", "integer", default="60", least=1, most=SECONDS_MAX
    ),
)  # fmt: skip
PLACES: Final = ("field", "value", "key", "header")
COMPARISONS: Final = ("equals", "contains", "starts", "less", "greater", "exists")
FIND_FIELDS: Final = (
    FieldSpec("place", "where to look", choices=PLACES, default="field"),
    FieldSpec("name", "a field of JSON such as a.b, or the name of a header", length_max=500),
    FieldSpec("how", "how to compare", choices=COMPARISONS, default="equals"),
    FieldSpec("text", "what to find"),
    FieldSpec("partition", "only this partition", "integer"),
    FieldSpec("since", "only records from this time on, in ISO 8601", length_max=40),
    FieldSpec("until", "only records before this time, in ISO 8601", length_max=40),
)


def show_sql(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return the editor, one page of a run's result, and the history of the session."""
    run = None
    if values.text("run"):
        run = view.queries.find(values.session_id, values.text("run"))
    history = view.queries.history(values.session_id)[:HISTORY_SHOWN]
    statement = values.text("statement") or ("" if run is None else run.statement)
    return {
        "statement": statement,
        "rows": values.whole("rows"),
        "seconds": values.whole("seconds"),
        "storage": view.kind == "root",
        "run": None if run is None else _run(run, values.whole("page")),
        "history": [_summary(one) for one in history],
    }


def _summary(run: QueryRun) -> dict[str, Any]:
    return {
        "run": run.run_id,
        "statement": run.statement,
        "topic": run.topic,
        "state": run.state,
        "started": run.started_ms,
        "milliseconds": run.milliseconds,
        "rows": run.rows,
        "truncated": run.truncated,
        "message": run.message,
    }


def _run(run: QueryRun, number: int) -> dict[str, Any]:
    result, cost = run.result, run.cost_now()
    page = RowPage.of(0 if result is None else result.num_rows, number, RESULT_ROWS)
    shown = None if result is None else result.slice(page.first, RESULT_ROWS)
    return {
        **_summary(run),
        **page.document(),
        "held": result is not None,
        "columns": [] if result is None else list(result.schema.names),
        "records": [] if shown is None else result_rows(shown, run.topic),
        "cost": cost_document(cost),
    }


def cost_document(cost: QueryCost) -> dict[str, Any]:
    """Return the cost of a query as JSON values."""
    return {
        "segments": cost.segments,
        "skipped": cost.skipped,
        "read": cost.read,
        "records": cost.records,
        "served": cost.served,
        "requests": cost.requests,
        "bytes": cost.bytes,
        "percent": math.floor(cost.share * 100),
    }


def result_rows(table: pa.Table, topic: str) -> list[dict[str, Any]]:
    """Return rows with bounded cells; each has a link if it is a record of `topic`."""
    names = table.schema.names
    places = [names.index(n) for n in ("partition", "offset")] if topic else []
    columns = [[result_cell(one) for one in column] for column in table.columns]
    rows = []
    for cells in zip(*columns, strict=True):
        link = ""
        if places:
            number, offset = (cells[at]["text"] for at in places)
            link = f"/topics/{quote(topic, safe='')}/partitions/{number}/records/{offset}"
        rows.append({"cells": list(cells), "link": link})
    return rows


def result_cell(scalar: Any) -> dict[str, Any]:
    """Return a value for people, at most `PREVIEW_BYTES` of it."""
    try:
        value = scalar.as_py()
    except (ValueError, OverflowError):  # a time beyond the years of Python
        return {"text": str(scalar)[:PREVIEW_BYTES], "kind": "text", "shortened": False}
    match value:
        case None:
            return {"text": "null", "kind": "null", "shortened": False}
        case bytes():
            shown = shown_payload(value, pretty=False)
            return {"text": shown.text, "kind": shown.decoder, "shortened": shown.shortened}
        case bool():
            return {"text": str(value).lower(), "kind": "number", "shortened": False}
        case int() | float():
            return {"text": str(value), "kind": "number", "shortened": False}
        case datetime():
            text, kind = value.isoformat(sep=" "), "text"
        case str():
            text, kind = value, "text"
        case _:
            text, kind = json.dumps(json_value(value), ensure_ascii=False, default=str), "json"
    return {
        "text": text[:PREVIEW_BYTES], "kind": kind, "shortened": len(text) > PREVIEW_BYTES,
    }  # fmt: skip


def run_query(view: ClusterView, values: BoundedValues) -> ChangeDone:
    """Start a query; its page shows progress and result."""
    statement = values.text("statement").strip()
    if not statement:
        raise InvalidRequest("statement is needed: one statement of SQL that reads")
    return _started(view, values, statement, "")


def _started(view: ClusterView, values: BoundedValues, statement: str, topic: str) -> ChangeDone:
    limits = QueryLimits(values.whole("seconds"), MEMORY_BYTES, values.whole("rows"), THREADS)
    run = view.queries.start(values.session_id, statement, limits, topic)
    return ChangeDone("", f"/sql?run={run.run_id}", {"run": run.run_id})


def cancel_query(view: ClusterView, values: BoundedValues) -> ChangeDone:
    """Cancel a run of this session."""
    run = view.queries.find(values.session_id, values.text("run"))
    run.cancel()
    return ChangeDone("", f"/sql?run={run.run_id}", {"run": run.run_id})


def show_find(view: ClusterView, values: BoundedValues) -> dict[str, Any]:
    """Return the form of the search by any field, with the SQL that it stands for."""
    topic = view.topic(values.text("topic"))
    given = {spec.name: values.text(spec.name) for spec in FIND_FIELDS}
    chosen = bool(values.text("text") or values.text("how") == "exists")
    return {
        **given,
        "topic": topic.name,
        "partitions": topic.partitions,
        "storage": view.kind == "root",
        "led": any(state.leader >= 0 for state in topic.partition_states),
        "rows": values.whole("rows"),
        "seconds": values.whole("seconds"),
        "statement": find_statement(topic.name, values) if chosen else "",
    }


def find_records(view: ClusterView, values: BoundedValues) -> ChangeDone:
    """Start the search of a topic's records by a field."""
    topic = view.topic(values.text("topic")).name
    return _started(view, values, find_statement(topic, values), topic)


def find_statement(topic: str, values: BoundedValues) -> str:
    """Return the SQL of a search.

    Raises:
        InvalidRequest: a name, a number or a time is missing or wrong.
    """
    conditions = [_condition(values)]
    only = values.optional_whole("partition")
    if only is not None:
        conditions.append(f"partition = {only}")
    for name, mark in (("since", ">="), ("until", "<")):
        if values.text(name):
            seconds = time_of(values.text(name)) / 1000
            conditions.append(f'"timestamp" {mark} to_timestamp({seconds!r})')
    return (
        'SELECT partition, "offset", "timestamp", key, value\n'
        f"FROM {quoted(topic)}\nWHERE {' AND '.join(conditions)}"
    )


def _condition(values: BoundedValues) -> str:
    place, how, text = values.text("place"), values.text("how"), values.text("text")
    if place == "key" and how == "equals":
        return f"key = encode({literal(text)})"  # the form that the key index answers
    found = _searched(place, values.text("name"))
    match how:
        case "equals":
            return f"{found} = {literal(text)}"
        case "contains":
            return f"contains({found}, {literal(text)})"
        case "starts":
            return f"starts_with({found}, {literal(text)})"
        case "exists":
            return f"{found} IS NOT NULL"
    try:
        number = float(text)
    except ValueError as error:
        raise InvalidRequest(f"{how} compares with a number, not {text[:80]!r}") from error
    if not math.isfinite(number):
        raise InvalidRequest(f"{how} compares with a finite number, not {text[:80]!r}")
    return f"try_cast({found} AS DOUBLE) {'<' if how == 'less' else '>'} {number!r}"


def _searched(place: str, name: str) -> str:
    if place in {"key", "value"}:
        return f"try_text({place})"
    if not name:
        raise InvalidRequest("name is needed: a field of JSON, or the name of a header")
    if place == "header":
        return f"try_text(header(headers, {literal(name)}))"
    path = name if name.startswith("/") else "/" + name.replace("~", "~0").replace(".", "/")
    return f"json_extract_string(try_json(value), {literal(path)})"


PAGES: Final = (
    PageResource(
        "/sql", "sql", "Show the editor of SQL, a run's result, and the session's history.",
        "sql.html", show_sql, (STATEMENT, RUN, *LIMITS, PAGE),
    ),
    PageResource(
        "/topics/{topic}/find", "find", "Show the search of records by any field.", "find.html",
        show_find, (*FIND_FIELDS, *LIMITS),
    ),
)  # fmt: skip
QUERY_ACTIONS: Final = (
    ChangeAction(
        "/sql/run", "runQuery", "Start a query of SQL.", ConsoleRole.VIEWER, run_query,
        (STATEMENT, *LIMITS), body_max=4 * STATEMENT_MAX,
    ),
    ChangeAction(
        "/sql/cancel", "cancelQuery", "Cancel a query.", ConsoleRole.VIEWER, cancel_query, (RUN,),
    ),
    ChangeAction(
        "/topics/{topic}/find", "findRecords", "Start a search of records by a field.",
        ConsoleRole.VIEWER, find_records, (*FIND_FIELDS, *LIMITS),
    ),
)  # fmt: skip
