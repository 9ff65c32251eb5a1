"""Brokers on S3: kills, credentials that expire under load, and the bucket policy of `conf/s3`.

The kills and the policy are tried on versitygw, or on moto where Go is missing: the tests' names
say which. Credentials that expire need moto, which accepts every key.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from sparklog.client.admin import Admin
from sparklog.cluster.log import open_log
from sparklog.cluster.named_snapshots import create_snapshot
from sparklog.cluster.usage_reporter import UsageReporter
from sparklog.core.shipped_files import shipped_folder
from sparklog.store.probe import PROBE_PREFIX
from tests.harness.broker_processes import BrokerProcesses
from tests.harness.fault_proxy import Action, FaultProxy, fault_proxy
from tests.harness.moto_server import REGION, MotoServer, moto_server
from tests.harness.short_credentials import ShortCredentials
from tests.harness.store_servers import S3_SERVER, S3Server, s3_server
from tests.harness.waiting import eventually
from tests.soak.world import QUICK, world_on

BUCKET = "expiring"
LIFETIME_S = 2.0
EXPIRIES = 3


@pytest.fixture
def moto() -> Iterator[MotoServer]:
    with moto_server() as server:
        server.make_bucket(BUCKET)
        yield server


@pytest.fixture(params=[S3_SERVER])
def server(tmp_path: Path) -> Iterator[S3Server]:
    with s3_server(tmp_path / "s3", BUCKET) as server:
        yield server


def test_a_kill_of_all_brokers_loses_nothing(server: S3Server, tmp_path: Path) -> None:
    root = f"s3://{BUCKET}/log"
    with world_on(root, tmp_path, QUICK, environment=server.environment()) as world:
        world.flows()
        for broker in world.cluster.brokers:
            broker.kill()
        world.judge()


def test_read_only_bucket_is_named_and_written_again_once_it_can_be(
    server: S3Server, tmp_path: Path
) -> None:
    with (
        fault_proxy(server.port) as proxy,
        BrokerProcesses(
            f"s3://{BUCKET}/log",
            tmp_path,
            environment=server.environment(proxy.endpoint_url),
            count=1,
        ) as brokers,
    ):
        with Admin(brokers.bootstrap) as admin:
            admin.create_topic("t", 1, {"sparklog.commit": "storage", "flush.ms": "200"})
        producer = Producer({"bootstrap.servers": brokers.bootstrap})
        producer.produce("t", b"before")
        assert producer.flush(60) == 0
        proxy.add(Action.ANSWER, "PUT", status=403, code="AccessDenied")
        producer.produce("t", b"meanwhile")
        (broker,) = brokers.brokers
        eventually(lambda: "refuses what it allowed before" in broker.log, "the broker says so")
        assert producer.flush(0.5) == 1, "nothing is acknowledged without the bucket"
        proxy.clear()
        assert producer.flush(60) == 0
        consumer = Consumer({"bootstrap.servers": brokers.bootstrap, "group.id": "g"})
        consumer.assign([TopicPartition("t", 0, 0)])
        assert [one.value() for one in consumer.consume(2, 60)] == [b"before", b"meanwhile"]
        consumer.close()


def test_broker_acknowledges_every_record_while_credentials_expire(
    moto: MotoServer, tmp_path: Path
) -> None:
    sent, failed, acknowledged = 0, [], 0

    def delivered(error: KafkaError | None, message: Message) -> None:
        nonlocal acknowledged
        acknowledged += error is None
        if error is not None:
            failed.append(str(error))

    with (
        fault_proxy(moto.port) as proxy,
        ShortCredentials(moto, tmp_path, LIFETIME_S) as credentials,
    ):
        proxy.has_expired = credentials.has_expired
        environment = {
            "AWS_ENDPOINT_URL": proxy.endpoint_url,
            "AWS_REGION": REGION,
            **credentials.environment,
        }
        with BrokerProcesses(
            f"s3://{BUCKET}/log", tmp_path, environment=environment, count=1
        ) as brokers:
            with Admin(brokers.bootstrap) as admin:
                admin.create_topic("t", 1, {"sparklog.commit": "storage"})
            producer = Producer({"bootstrap.servers": brokers.bootstrap, "linger.ms": 5})
            before = credentials.used
            while credentials.used < before + EXPIRIES:
                producer.produce("t", b"x" * 100, on_delivery=delivered)
                sent += 1
                producer.poll(0)
                time.sleep(0.005)  # the load's rate, 200 records a second
            assert producer.flush(60) == 0
    assert failed == []
    assert acknowledged == sent


def test_bucket_policy_denies_only_puts_that_overwrite(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fault_proxy(server.port) as proxy:
        _write_objects_of_several_kinds(
            server.environment(proxy.endpoint_url), tmp_path, monkeypatch
        )
    _check_policy(proxy)


def _write_objects_of_several_kinds(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    root = f"s3://{BUCKET}/some/log"
    with BrokerProcesses(root, tmp_path, environment=environment, count=1) as brokers:
        with Admin(brokers.bootstrap) as admin:
            admin.create_topic("t", 1, {"sparklog.commit": "storage"})
        producer = Producer({"bootstrap.servers": brokers.bootstrap})
        producer.produce("t", b"x")
        assert producer.flush(60) == 0
    with open_log(root) as log:
        log.create_topic("direct", 1)
        log.partition("direct", 0).append([pa.record_batch({"value": [b"y"]})])
        create_snapshot(log, "s", ["direct"])
        UsageReporter(log, "test").report()


def _check_policy(proxy: FaultProxy) -> None:
    document = json.loads((shipped_folder("conf") / "s3" / "bucket-policy.json").read_text())
    (once,) = (one for one in document["Statement"] if one["Action"] == "s3:PutObject")
    patterns = [
        text.removeprefix("arn:aws:s3:::").replace("BUCKET/PREFIX", f"/{BUCKET}/some/log")
        for text in once["Resource"]
    ]

    def is_covered(path: str) -> bool:
        return any(fnmatchcase(unquote(path), pattern) for pattern in patterns)

    def is_of_log(path: str) -> bool:
        return "/some/log/" in path and PROBE_PREFIX not in path

    objects = [(path, creates) for path, creates in proxy.puts if is_of_log(path)]
    folders = {unquote(path).split("/")[-2] for path, _ in objects}
    assert {"log", "pinned", "snapshots"} <= folders, "the run writes objects of several kinds"
    assert any("/some/log/usage/" in path for path, _ in objects)
    assert [path for path, creates in objects if not creates and is_covered(path)] == []
    assert [path for path, creates in objects if creates and not is_covered(path)] == []
