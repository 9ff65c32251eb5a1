"""The rows of a job's input, and the lines of it that are none.

CSV is read as RFC 4180 defines it, JSON as lines of one object (or one array of objects) each. A
line that is malformed becomes no record: it fails the job, which then has sent nothing, or it is
set aside with the reason.

  PRODUCE-ROWS-1: every line is checked, also one that the job would not have taken
  PRODUCE-ROWS-2: a user who names a `mode` for Spark's reader has that instead of these checks
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StringType, StructField, StructType

from sparklog.core.errors import InvalidRequest
from sparklog.spark.access.json_text import (
    DEPTH_OPTION,
    STANDARD_JSON,
    is_one_document,
    is_too_deep,
    is_too_large,
    readable,
)
from sparklog.spark.access.sql_names import quoted

CSV_OPTIONS: Final = {
    "header": "true",
    "inferSchema": "true",
    # RFC 4180: a quoted field may hold line breaks, and a quote in it is written twice.
    "multiLine": "true",
    "escape": '"',
    # Text between a closing quote and the next comma.
    "unescapedQuoteHandling": "RAISE_ERROR",
    # A row is short of fields that the schema does not ask for, too.
    "columnPruning": "false",
}
SHOWN: Final = 5
"""Malformed lines that are shown."""
SHOWN_CHARS: Final = 120
"""Characters that are shown of one."""
MALFORMED: Final = "__sparklog_malformed"
_CHECKED: Final = "__sparklog_checked"
_LINE: Final = "__sparklog_line"
_FILE: Final = "__sparklog_file"
_PARSED: Final = "__sparklog_parsed"
_ROW: Final = "__sparklog_row"
_ENCODING: Final = "--option encoding=ISO-8859-1"
_REPLACEMENT: Final = "\ufffd"
_NOT_FOR_TEXT: Final = ("multiline", "mode", "wholetext")


@dataclass(frozen=True, slots=True)
class Input:
    """A Spark source to read, with its options."""

    source: str
    paths: tuple[str, ...] = ()
    options: Mapping[str, str] | None = None
    schema: str | None = None
    streams: bool = False

    def option(self, name: str) -> str | None:
        """Return an option as it was given; case does not matter."""
        given = self.options or {}
        return next((value for key, value in given.items() if key.lower() == name.lower()), None)


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """The rows of an input, each with why it is malformed (`MALFORMED`, null for a good one)."""

    _all: DataFrame
    checked: bool

    @property
    def is_empty(self) -> bool:
        """Return whether there are no columns, as nothing is in any file."""
        return not [name for name in self._all.columns if name not in (MALFORMED, _LINE, _FILE)]

    def good(self) -> DataFrame:
        """Return the rows without those that are malformed."""
        if not self.checked:
            return self._all
        return self._without_marks(self._all.where(sf.col(MALFORMED).isNull()))

    def all_or_none(self) -> DataFrame:
        """Return the rows; a task that meets a malformed one fails, and the job with it."""
        if not self.checked:
            return self._all
        shown = sf.to_json(sf.struct(sf.substring(_LINE, 1, SHOWN_CHARS).alias("line")))
        words = sf.concat(sf.lit(f"{MALFORMED}: "), sf.col(MALFORMED), sf.lit(" "), shown)
        is_good = sf.when(sf.col(MALFORMED).isNull(), sf.lit(True)).otherwise(
            sf.raise_error(words).cast("boolean")
        )
        # Spark puts no filter of the job before what is observed (PRODUCE-ROWS-1).
        checked = self._all.where(is_good).observe(_CHECKED, sf.count(sf.lit(1)).alias("rows"))
        return self._without_marks(checked)

    def malformed(self) -> DataFrame:
        """Return the malformed lines: `reason`, `file`, `line`."""
        columns = (sf.col(MALFORMED).alias("reason"), sf.col(_FILE).alias("file"),
                   sf.col(_LINE).alias("line"))  # fmt: skip
        return self._all.where(sf.col(MALFORMED).isNotNull()).select(*columns)

    def _without_marks(self, rows: DataFrame) -> DataFrame:
        return rows.drop(MALFORMED, _LINE, _FILE)


def read_input(spark: SparkSession, given: Input) -> CheckedRows:
    """Return the rows of an input, filtered by nothing.

    Raises:
        InvalidRequest: a stream of JSON without a schema. PySparkException: the source.
    """
    source = given.source.lower()
    options = dict(given.options or {})
    if source == "csv":
        options = _csv_options(given)
    if source not in ("csv", "json") or given.option("mode") is not None:
        return CheckedRows(_loaded(spark, given, given.source, options, given.schema), False)
    if source == "csv":
        return CheckedRows(_csv_rows(spark, given, options), True)
    if given.option("encoding") or given.option("charset"):
        return CheckedRows(_encoded_json_rows(spark, given, options), True)
    return CheckedRows(_json_rows(spark, given, options), True)


def refusal(rows: CheckedRows) -> InvalidRequest | None:
    """Return the error that counts and shows the malformed lines; None if there are none.

    Reads the whole input.
    """
    found = rows.malformed()
    count = found.count()
    if not count:
        return None
    shown = "; ".join(
        f"{one['reason']}: {_shown(one['line'])} file={_shown(one['file'])}"
        for one in found.limit(SHOWN).collect()
    )
    return InvalidRequest(
        f"lines of the input are malformed, and nothing was sent. Mend them, or set them aside "
        f"with --malformed FOLDER. malformed={count} {shown}"
    )


def _shown(text: Any) -> str:
    """Return a bounded text in ASCII, without control characters."""
    whole = str(text or "")
    return json.dumps(whole[:SHOWN_CHARS]) + ("…" if len(whole) > SHOWN_CHARS else "")


def _loaded(
    spark: SparkSession,
    given: Input,
    source: str,
    options: Mapping[str, str],
    schema: StructType | str | None,
) -> DataFrame:
    if given.streams:
        stream = spark.readStream.format(source).options(**options)
        stream = stream.schema(schema) if schema is not None else stream
        return stream.load(given.paths[0]) if given.paths else stream.load()
    reader = spark.read.format(source).options(**options)
    reader = reader.schema(schema) if schema is not None else reader
    return reader.load(list(given.paths)) if given.paths else reader.load()


def _csv_options(given: Input) -> dict[str, str]:
    chosen = {name: value for name, value in CSV_OPTIONS.items() if given.option(name) is None}
    if given.schema is not None:
        chosen.pop("inferSchema", None)
        if given.option("enforceSchema") is None:
            # Columns are those that the header names, in any order of the schema.
            chosen["enforceSchema"] = "false"
    return {**chosen, **(given.options or {})}


def _csv_rows(spark: SparkSession, given: Input, options: Mapping[str, str]) -> DataFrame:
    if given.schema is not None:
        fields = _fields(given.schema)
    else:
        fields = _loaded(spark, given, "csv", options, None).schema
    marked = {**options, "columnNameOfCorruptRecord": MALFORMED}
    marked = {key: value for key, value in marked.items() if key.lower() != "inferschema"}
    rows = _loaded(spark, given, "csv", marked, _with_mark(fields)) if fields.fields else None
    if rows is None:
        return spark.createDataFrame([], f"{MALFORMED} STRING, {_LINE} STRING, {_FILE} STRING")
    every = [sf.col(quoted(name)) for name in fields.names]
    reason = _of_all_columns(
        every, "not as many fields as the header has, or a field that is not of its type"
    )
    if given.option("encoding") is None and given.option("charset") is None:
        texts = [one.name for one in fields.fields if isinstance(one.dataType, StringType)]
        reason = reason.when(_any_replaced(texts), f"not UTF-8; name it with {_ENCODING}")
    line = sf.coalesce(sf.col(MALFORMED), sf.to_json(sf.struct(*every)))
    return rows.select(
        *(sf.col(quoted(name)) for name in rows.columns if name != MALFORMED),
        line.alias(_LINE),
        sf.input_file_name().alias(_FILE),
        reason.alias(MALFORMED),
    )


def _of_all_columns(every: list[Column], reason: str) -> Column:
    """Return a reason where Spark's reader has marked a row.

    The reader converts only fields that are asked for, and finds nothing wrong with others. The
    second condition never holds, and asks for all of them.
    """
    marked = sf.col(MALFORMED).isNotNull()
    return sf.when(marked, reason).when((sf.hash(*every) == 0) & marked, reason)


def _any_replaced(names: list[str]) -> Column:
    """Return whether a decoder has put U+FFFD in the place of bytes that are no character."""
    found = sf.lit(False)
    for name in names:
        has = sf.col(quoted(name)).contains(_REPLACEMENT)
        found = found | sf.coalesce(has, sf.lit(False))
    return found


def _json_rows(spark: SparkSession, given: Input, options: Mapping[str, str]) -> DataFrame:
    """Return rows of JSON that is read as text first, so that nothing of a line is lost."""
    whole = str(given.option("multiLine") or "false").lower() == "true"
    of_text = {key: value for key, value in options.items() if key.lower() not in _NOT_FOR_TEXT}
    of_json = {key: value for key, value in options.items() if key.lower() != "multiline"}
    of_json |= STANDARD_JSON
    lines = _loaded(spark, given, "text", {**of_text, "wholetext": str(whole).lower()}, None)
    text = sf.ltrim(sf.col("value"), sf.lit("\ufeff")) if whole else sf.col("value")
    trimmed = sf.btrim(text, sf.lit(" \t\r\n"))
    folders = [name for name in lines.columns if name != "value"]
    lines = lines.select(
        *(sf.col(quoted(name)) for name in folders),
        trimmed.alias(_LINE),
        sf.input_file_name().alias(_FILE),
    ).where(sf.col(_LINE) != "")
    line = sf.col(_LINE)
    reason = (
        sf.when(~sf.is_valid_utf8(line), f"not UTF-8; name it with {_ENCODING}")
        .when(is_too_large(line), "too large")
        .when(is_too_deep(line), "nested too deep")
        .when(~is_one_document(line), "not one JSON document")
        .when(~(line.startswith("{") | line.startswith("[")), "neither an object nor an array")
    )
    checked = lines.withColumn(MALFORMED, reason)
    listed = sf.from_json(
        sf.when(line.startswith("[") & sf.col(MALFORMED).isNull(), line),
        "ARRAY<STRING>",
        STANDARD_JSON,
    )
    one = sf.explode(sf.when(listed.isNotNull(), listed).otherwise(sf.array(line)))
    documents = checked.withColumn(_PARSED, one)
    text_of_one = sf.when(sf.col(MALFORMED).isNull(), readable(sf.col(_PARSED)))
    if given.schema is not None:
        fields = _fields(given.schema)
    elif given.streams:
        raise InvalidRequest('a stream of JSON needs --schema, such as "id BIGINT, name STRING"')
    else:
        objects = documents.select(text_of_one.alias("value")).where("value LIKE '{%'")
        fields = spark.read.options(**{**of_json, "mode": "DROPMALFORMED"}).json(objects).schema
    parsed = sf.from_json(
        text_of_one, _with_mark(fields),
        {**of_json, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": MALFORMED},
    )  # fmt: skip
    rows = documents.withColumn(_ROW, parsed)
    unread = sf.col(quoted(_ROW, MALFORMED)).isNotNull() | ~sf.col(_PARSED).startswith("{")
    return rows.select(
        *(sf.col(quoted(_ROW, name)) for name in fields.names),
        *(sf.col(quoted(name)) for name in folders),
        _LINE,
        _FILE,
        sf.coalesce(
            sf.col(MALFORMED), sf.when(unread, "not a JSON object that fits the schema")
        ).alias(MALFORMED),
    )


def _encoded_json_rows(spark: SparkSession, given: Input, options: Mapping[str, str]) -> DataFrame:
    """Return rows of JSON in another encoding, which Spark's own reader decodes."""
    marked = {"lineSep": "\n", **options, "columnNameOfCorruptRecord": MALFORMED} | DEPTH_OPTION
    if given.schema is not None:
        fields = _fields(given.schema)
    else:
        fields = _loaded(spark, given, "json", marked, None).schema
    rows = _loaded(spark, given, "json", marked, _with_mark(fields))
    every = [sf.col(quoted(name)) for name in fields.names if name != MALFORMED]
    return rows.select(
        *(sf.col(quoted(name)) for name in rows.columns if name != MALFORMED),
        sf.coalesce(sf.col(MALFORMED), sf.to_json(sf.struct(*every))).alias(_LINE),
        sf.input_file_name().alias(_FILE),
        _of_all_columns(every, "not JSON that fits the schema").alias(MALFORMED),
    )


def _fields(ddl: str) -> StructType:
    kind = StructType.fromDDL(ddl)
    if not isinstance(kind, StructType):
        raise InvalidRequest(f"--schema takes columns: 'id BIGINT, name STRING'. given={ddl!r}")
    return kind


def _with_mark(fields: StructType) -> StructType:
    kept = [field for field in fields.fields if field.name != MALFORMED]
    return StructType([*kept, StructField(MALFORMED, StringType())])
