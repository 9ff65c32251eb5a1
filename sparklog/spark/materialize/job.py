"""From a topic to a Delta table, every record once: what `jobs/materialize.py` does.

MATERIALIZE-1: one commit of the table decides a batch: rows, offsets and the batch's number
    together
MATERIALIZE-2: where to go on is read from the table, never from anywhere else
MATERIALIZE-3: rejected records follow the commit that left them out, by its number, range and
    schema; the next batch is not begun before they are there. A job that finds a batch without
    them parks them first, and Delta takes them once
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from sparklog.cluster.log import Log, open_log
from sparklog.cluster.usage_reporter import reported_usage
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.entropy import SYSTEM_ENTROPY
from sparklog.core.errors import Fenced
from sparklog.core.types import OffsetRange, TopicPartition
from sparklog.spark.jobs.jars import delta_conf
from sparklog.spark.jobs.job import OpenSession, failure_line
from sparklog.spark.jobs.progress import JobProgress, ProgressReport, StageSampler, Tally, watched
from sparklog.spark.jobs.streaming import StopRequest
from sparklog.spark.materialize.arguments import MaterializeJob
from sparklog.spark.materialize.avro_limits import avro_limits_conf, bound_avro
from sparklog.spark.materialize.commit import (
    APPEND,
    AVRO,
    JSON,
    REGISTRY,
    UPSERT,
    CommitOrigin,
    Ranges,
    TableCommit,
    Values,
    check_origin,
    next_starts,
    offsets_in,
)
from sparklog.spark.materialize.report import MaterializeTally, planned_report, report
from sparklog.spark.materialize.rows import (
    BAD,
    classified,
    dead_column,
    given_fields,
    rejected_rows,
    seen_fields,
    split_documents,
    table_rows,
)
from sparklog.spark.materialize.schema import (
    DATE_COLUMN,
    merged_given,
    needed_properties,
    value_fields,
)
from sparklog.spark.materialize.schemas import SubjectSchemas, opened_registry, payload
from sparklog.spark.materialize.tables import DeltaTables, FoundTable, own_session
from sparklog.spark.materialize.topic import MaterializedTopic, ranges_between
from sparklog.spark.source.stream_reader import at_most

NONCE_BYTES = 12
POLL_INTERVAL_S = 0.5
COMMIT_AGE_MAX_MS = 24 * 3600 * 1000
"""After this time without records an empty commit follows; Delta keeps commits for 30 days."""

MakeTables = Callable[..., DeltaTables]


def materialize(
    job: MaterializeJob,
    open_session: OpenSession,
    progress: JobProgress,
    make_tables: MakeTables = DeltaTables,
    program: str | None = None,
) -> ProgressReport:
    """Bring the table up to the topic's end, or follow it, and return what was done.

    With the name of a program, the driver reports its requests under that name. A job that no
    schedule started is in no history, and may follow its topic for weeks.

    Raises:
        SparklogError: the topic, or a table that does not fit it. PySparkException: Spark.
        InvalidRequest: the session was started without Delta Lake.
    """
    with (
        open_log(job.root) as log,
        reported_usage(log, program) if program else nullcontext(),
        _schemas_of(job, log) as schemas,
    ):
        log.topic(job.topic)
        spark = own_session(open_session({**delta_conf(), **avro_limits_conf()}))
        if schemas is not None:
            job = replace(job, format=schemas.format)
        if job.format == AVRO:
            bound_avro(spark)
        tables = make_tables(spark, job.table, job.rejected, job.partition_by)
        progress.start()
        with MaterializedTopic(log, job.root, job.topic, job.isolation, job.options) as topic:
            run = Materialization(job, spark, tables, topic, progress, schemas=schemas)
            done = run.plan() if job.dry_run else run.run()
        return replace(done, counted=log.requests())


@contextmanager
def _schemas_of(job: MaterializeJob, log: Log) -> Iterator[SubjectSchemas | None]:
    """Open the schemas that the topic's values carry the ids of, if the job reads by them."""
    if job.format != REGISTRY:
        yield None
        return
    with opened_registry(log) as registry:
        yield SubjectSchemas(registry, job.subject or f"{job.topic}-value", job.message)


class Materialization:
    """One run of the job."""

    def __init__(
        self,
        job: MaterializeJob,
        spark: SparkSession,
        tables: DeltaTables,
        topic: MaterializedTopic,
        progress: JobProgress,
        clock: Clock = SYSTEM_CLOCK,
        schemas: SubjectSchemas | None = None,
    ) -> None:
        """Prepare it; nothing is looked at yet."""
        self._job = job
        self._schemas = schemas
        self._spark = spark
        self._tables = tables
        self._topic = topic
        self._progress = progress
        self._clock = clock
        self._tally = MaterializeTally()
        self._fields = StructType([])
        """Of the table, as fields of the value."""
        self._warned: tuple[str, ...] = ()
        """Fields of the newest warning about their case."""
        self._until: dict[int, int] | None = None

    def run(self) -> ProgressReport:
        """Write batch after batch; a wish to end is granted between two of them."""
        found = self._begin()
        with StopRequest() as request:
            while request.exit_code is None:
                started_s = self._clock.monotonic_s()
                commit = self._planned(found)
                if commit is not None:
                    found = self._write(commit, found)
                elif self._job.interval_s is None:
                    break
                self._wait(started_s, request)
            return report(self._job, self._tally, found, self._progress, request.exit_code)

    def plan(self) -> ProgressReport:
        """Say what would be done; schemas are looked for in the first batch."""
        found = self._looked_up()
        commit = self._planned(found)
        if commit is None:
            return planned_report(self._job, found, {}, 0, StructType([]), self._progress)
        _, held = self._held()
        ranges = ranges_between(
            {number: one.base_offset for number, one in commit.ranges.items()},
            {number: max(one.end_offset, commit.ends[number]) for number, one in held.items()},
        )
        records = self._topic.count(self._spark, ranges)
        good = self._classified(commit.ranges, commit)
        rows = self._rows(good, commit)
        return planned_report(self._job, found, ranges, records, rows.schema, self._progress)

    def _begin(self) -> FoundTable:
        """Return where the table is, after completing the work of a killed job (MATERIALIZE-3)."""
        found = self._looked_up()
        if found.commit is not None:
            self._complete(found, found.commit)
        return found

    def _looked_up(self) -> FoundTable:
        """Return where the table is, whose columns must take what was given."""
        found = self._tables.newest()
        if found.exists:
            self._fields = self._tables.fields()
        if self._job.format == JSON and self._job.schema is not None:
            merged_given(self._fields, given_fields(self._job.schema))
        return found

    def _complete(self, found: FoundTable, last: TableCommit) -> None:
        whole = last.origin.mode == APPEND and not last.values.each_document
        if whole and found.rows == last.offsets:
            return  # a row for every offset: none was rejected
        parked = self._tables.newest_rejected()
        if parked.commit is not None and parked.commit.batch >= last.batch:
            return
        topic_id, held = self._topic.held()
        if topic_id != last.origin.topic_id:
            return  # these can no longer be read; the next batch decides whether to go on
        ranges = {n: last.ranges.get(n, OffsetRange(0, 0)) for n in held}
        bad = self._classified(ranges, last).where(BAD)
        if not bad.isEmpty():
            self._park(bad, last)

    def _planned(self, found: FoundTable) -> TableCommit | None:
        """Return the next batch, None if there is nothing new."""
        job, last = self._job, found.commit
        topic_id, held = self._held()
        origin = CommitOrigin(job.topic, topic_id, job.mode, job.isolation)
        known: dict[int, int] = {}
        if last is not None:
            check_origin(last, origin, fail_on_data_loss=job.fail_on_data_loss)
            known = last.ends if last.origin.topic_id == topic_id else {}
        elif job.start == "latest":
            known = {number: offsets.end_offset for number, offsets in held.items()}
        starts = next_starts(
            known, held, first=last is None, fail_on_data_loss=job.fail_on_data_loss
        )
        makes = last is None and (job.start == "latest" or job.mode == UPSERT)
        if makes:  # the table alone: it shall know where it begins, and a merge needs one
            held = {number: OffsetRange(at, at) for number, at in starts.items()}
        ranges = _limited(job.topic, starts, held, job.max_per_batch)
        # Delta forgets old commits: one that says where the table is must be among those it keeps.
        aged = found.exists and self._clock.now_ms() - found.committed_ms > COMMIT_AGE_MAX_MS
        if not offsets_in(ranges) and not makes and not aged:
            return None
        batch = 1 if last is None else last.batch + 1
        nonce = SYSTEM_ENTROPY.random_bytes(NONCE_BYTES).hex()
        return TableCommit(batch, nonce, origin, ranges, self._values(ranges, last))

    def _held(self) -> tuple[str, Ranges]:
        """Return the topic; if not following it, only what it held when that was first asked."""
        topic_id, held = self._topic.held()
        if self._job.interval_s is not None:
            return topic_id, held
        if self._until is None:
            self._until = {number: offsets.end_offset for number, offsets in held.items()}
        until = self._until
        return topic_id, {
            number: OffsetRange(one.base_offset, max(one.base_offset, min(one.end_offset, end)))
            for number, one in held.items()
            if (end := until.get(number)) is not None
        }

    def _values(self, ranges: Ranges, last: TableCommit | None) -> Values:
        """Return what the values of a batch are read as; looks at them where fields may be new."""
        job = self._job
        if job.format != JSON and self._schemas is not None:
            return self._schemas.values(None if last is None else last.values.message)
        if job.format != JSON:
            return Values(job.format, job.schema)
        if job.schema is not None:
            given = given_fields(job.schema)
            schema = merged_given(self._fields, given).json()
            return Values(JSON, schema, each_document=job.each_document)
        records = self._read(ranges)
        records = split_documents(records) if job.each_document else records
        growth = seen_fields(self._spark, records, self._fields)
        if growth.clashes and growth.clashes != self._warned:
            self._warned = growth.clashes
            self._progress.say(growth.warning(job.rejected))
        return Values(JSON, growth.schema.json(), True, growth.clashes, job.each_document)

    def _read(self, ranges: Ranges) -> DataFrame:
        job = self._job
        records = self._topic.records(
            self._spark, ranges, headers=job.headers, fail_on_data_loss=job.fail_on_data_loss
        )
        if job.format == JSON and self._schemas is not None:
            return records.withColumn("value", payload(records))
        return records

    def _classified(self, ranges: Ranges, commit: TableCommit) -> DataFrame:
        values = commit.values
        if values.writers and self._schemas is not None:  # a commit from the table has numbers only
            values = self._schemas.with_schemas(values)
        return classified(self._read(ranges), values, commit.origin.mode)

    def _write(self, commit: TableCommit, before: FoundTable) -> FoundTable:
        if commit.origin.mode == UPSERT and before.exists:
            rejected = self._merge(commit)
        else:
            rejected = self._append(commit, before)
        found = self._settled(commit)
        bad = rejected()
        if bad:
            self._park(self._classified(commit.ranges, commit).where(BAD), commit)
        self._tally.add(found, commit, bad)
        self._merge_small_files(commit)
        return found

    def _append(self, commit: TableCommit, before: FoundTable) -> Callable[[], int]:
        """Write rows; return a function for the number left out (valid after a write)."""
        seen = Observation("sparklog_materialize")
        counted = self._classified(commit.ranges, commit).observe(seen, _rejected_count())
        rows = self._rows(counted.where(~sf.col(BAD)), commit)
        properties = needed_properties(self._fields, value_fields(rows.schema))
        if properties and before.exists:
            self._tables.set_properties(properties)
        with self._watched():
            self._tables.append(rows, commit, properties)
        return lambda: int(seen.get["bad"] or 0)

    def _merge(self, commit: TableCommit) -> Callable[[], int]:
        classified = self._classified(commit.ranges, commit)
        dead = dead_column(commit.values, self._fields)
        rows = self._rows(classified.where(~sf.col(BAD)), commit, dead=dead)
        wanted = StructType([one for one in rows.schema.fields if one.name != dead])
        properties = needed_properties(self._fields, value_fields(wanted))
        if properties:
            self._tables.set_properties(properties)
        with self._watched():
            self._tables.upsert(rows, commit, dead)
        # A merge reads its rows more than once, so that they are not counted on the way.
        return lambda: int(classified.agg(_rejected_count()).collect()[0]["bad"] or 0)

    def _rows(self, good: DataFrame, commit: TableCommit, *, dead: str | None = None) -> DataFrame:
        dated = DATE_COLUMN in self._job.partition_by
        return table_rows(good, commit.values, self._fields, dated=dated, dead=dead)

    def _watched(self) -> AbstractContextManager[None]:
        sampler, done = StageSampler(self._spark), self._tally.rows
        return watched(self._progress, lambda: Tally(done + sampler().rows))

    def _merge_small_files(self, commit: TableCommit) -> None:
        every = self._job.optimize_every
        if not every or commit.batch % every:
            return
        try:
            merged = self._tables.optimize()
        except PySparkException as error:  # another writer of the table; the next round does it
            self._progress.say(f"warning: small files were not merged: {failure_line(error)}")
            return
        self._tally.merged_files += merged["removed"]

    def _settled(self, commit: TableCommit) -> FoundTable:
        """Return the table after a write, which must have been ours.

        Raises:
            Fenced: another job writes to the table.
        """
        found = self._tables.newest()
        if found.commit is None or found.commit.nonce != commit.nonce:
            other = found.commit.batch if found.commit is not None else 0
            raise Fenced(
                "another job writes to this table, and has written this batch; run one at a time. "
                f"table={self._job.table} batch={commit.batch} table_batch={other}"
            )
        self._fields = self._tables.fields()
        return found

    def _park(self, bad: DataFrame, commit: TableCommit) -> None:
        origin = commit.origin
        rows = rejected_rows(bad, commit.values, origin.topic, origin.mode)
        self._tables.park(rows, commit)

    def _wait(self, started_s: float, request: StopRequest) -> None:
        if self._job.interval_s is None:
            return
        until_s = started_s + self._job.interval_s
        while request.exit_code is None:
            left_s = until_s - self._clock.monotonic_s()
            if left_s <= 0:
                return
            self._clock.sleep_s(min(left_s, POLL_INTERVAL_S))


def _rejected_count() -> Column:
    return sf.sum(sf.col(BAD).cast("int")).alias("bad")


def _limited(topic: str, starts: dict[int, int], held: Ranges, rows_max: int) -> Ranges:
    begin = {TopicPartition(topic, number): at for number, at in starts.items()}
    ends = {place: held[place.partition].end_offset for place in begin}
    limited = at_most(rows_max, begin, ends)
    return {p.partition: OffsetRange(begin[p], limited[p]) for p in begin}
