"""The producers: one spark-submit per topic, expressions for key, headers and event time."""

from __future__ import annotations

from sparklog.cluster.log import Log
from sparklog.core.errors import TopicAlreadyExists
from sparklog.spark.demo.flights import TOPICS
from sparklog.spark.demo.processes import Child
from sparklog.spark.demo.scene import Scene

PARTITIONS = 3

FLIGHT_SCHEMA = (
    "year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, "
    "arr_time INT, sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, "
    "origin STRING, dest STRING, air_time INT, distance INT, hour INT, minute INT, "
    "time_hour STRING"
)
FLIGHT_RECORDS = (
    *("--key", "tailnum", "--headers", "carrier=carrier"),
    *("--timestamp", "to_timestamp(time_hour) + make_interval(0, 0, 0, 0, 0, minute)"),
)
_SCHEMAS = {
    "flights": FLIGHT_SCHEMA,
    "planes": "tailnum STRING, year INT, type STRING, manufacturer STRING, model STRING, "
    "engines INT, seats INT, speed INT, engine STRING",
    "weather": "origin STRING, year INT, month INT, day INT, hour INT, temp DOUBLE, dewp DOUBLE, "
    "humid DOUBLE, wind_dir INT, wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, "
    "pressure DOUBLE, visib DOUBLE, time_hour STRING",
}
_RECORDS = {
    "flights": FLIGHT_RECORDS,
    "planes": ("--key", "tailnum", "--timestamp", "timestamp'2013-01-01T00:00:00Z'"),
    "weather": ("--key", "origin", "--timestamp", "to_timestamp(time_hour)"),
}


def create_topics(scene: Scene, log: Log) -> None:
    """Create the topics.

    Raises:
        TopicAlreadyExists: the log has one of them, and its owner is unknown.
    """
    scene.narrator.step(f"The log: a topic per file under {scene.stage.root}")
    taken = [topic for topic in TOPICS if topic in log.topics()]
    if taken:
        raise TopicAlreadyExists(
            "the log under this root has topics that the demo would create; choose another root, "
            "or delete them with `sparklog topics --delete` if they are an earlier demo's. "
            f"root={scene.stage.root} topics={','.join(taken)}"
        )
    for topic in TOPICS:
        log.create_topic(topic, partitions=PARTITIONS)
        scene.narrator.tell(f"created {topic}, {PARTITIONS} partitions")
    scene.narrator.tell("no server: topics, like records, are objects that nobody can create twice")


def produce_tables(scene: Scene) -> None:
    """Send planes and `weather`, both at once."""
    scene.narrator.step("Producers: planes and weather, JSON values with keys and event times")
    jobs = [
        scene.job(
            "produce.py",
            *("--topic", topic, "--input", str(scene.stage.work / "in" / f"{topic}.csv")),
            *("--option", "nullValue=NA", "--schema", _SCHEMAS[topic]),
            *_RECORDS[topic],
        )
        for topic in ("planes", "weather")
    ]
    for job in jobs:
        tell_report(scene, job)


def produce_flights(scene: Scene) -> None:
    """Send the flights, month by month, by a stream that sends each once."""
    scene.narrator.step("A streaming producer: a year of flights, a file per month")
    job = scene.job(
        "produce.py",
        *("--topic", "flights", "--format", "csv"),
        *("--input", str(scene.stage.work / "in" / "flights")),
        *("--option", "nullValue=NA", "--option", "maxFilesPerTrigger=1"),
        *("--schema", _SCHEMAS["flights"]),
        *_RECORDS["flights"],
        *("--available-now", "--checkpoint", str(scene.stage.work / "checkpoints" / "produce")),
    )
    tell_report(scene, job)


def tell_report(scene: Scene, job: Child) -> int:
    """Wait for a job's end, and say what it reports; returns how many records it sent.

    Raises:
        ChildFailed: it failed.
    """
    report = job.finish()[-1]
    ends = ", ".join(f"{one['partition']}: {one['end_offset']:,}" for one in report["partitions"])
    batches = f" in {report['batches']} batches" if "batches" in report else ""
    scene.narrator.tell(
        f"{report['topic']}: {report['rows']:,} records{batches} in {report['seconds']:.1f} s, "
        f"{report['rows_per_second']:,.0f} per second; ends of partitions {ends}"
    )
    return int(report["rows"])
