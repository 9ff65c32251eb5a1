"""A bucket is emptied while brokers serve from it: they stop, and no new log begins in the rest.

`-s` prints how long the brokers took.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from sparklog.broker.wal.root_check import CHECK_EVERY_S
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.log.layout import METADATA_TOPIC, METADATA_TOPIC_ID, topic_folder
from sparklog.store.s3 import S3Store
from sparklog.store.settings import S3Access, StoreSettings
from sparklog.testing.history import Send, SendOutcome
from tests.harness.broker_processes import BrokerProcess, BrokerProcesses
from tests.harness.store_servers import S3_SERVER, S3Server, s3_server
from tests.harness.waiting import eventually
from tests.soak.world import World, world_on

BUCKET = "emptied"
SLACK_S = 5.0
"""A look is due after `CHECK_EVERY_S`, and then a put, an answer and the end of a process."""
NEW_LOG = "began a new log"
REFUSED = "No new log begins here"
METADATA = topic_folder(METADATA_TOPIC, METADATA_TOPIC_ID)


def keys(store: S3Store) -> list[str]:
    return [info.key for info in store.list("")]


def empty(store: S3Store) -> None:
    for key in keys(store):
        store.delete(key)


def store_at(s3: S3Server) -> S3Store:
    return S3Store(BUCKET, "log", S3Access.from_environment(s3.environment()), StoreSettings())


def ended(broker: BrokerProcess) -> bool:
    return broker.process is not None and broker.process.poll() is not None


def since_refusal(broker: BrokerProcess) -> str:
    return broker.log.rpartition(REFUSED)[2]


def begin_again(cluster: BrokerProcesses) -> None:
    for broker in cluster.brokers:
        broker.start()


def last_acknowledgement_s(world: World) -> float:
    sends = [one for one in list(world.load.history) if isinstance(one, Send)]
    return max(one.completed_s for one in sends if one.outcome is SendOutcome.OK)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("server", [S3_SERVER])
def test_emptied_bucket_stops_brokers_and_begins_no_log(server: str, tmp_path: Path) -> None:
    with s3_server(tmp_path / "s3", BUCKET) as s3:
        store = store_at(s3)
        root, environment = f"s3://{BUCKET}/log", s3.environment()
        with world_on(root, tmp_path, {}, environment=environment) as world:
            brokers = world.cluster.brokers
            world.flows()
            admin = AdminClient({"bootstrap.servers": world.cluster.bootstrap})
            cluster_id = admin.list_topics(timeout=30).cluster_id
            empty(store)
            emptied_s = SYSTEM_CLOCK.monotonic_s()
            eventually(lambda: all(map(ended, brokers)), "all brokers have ended")
            took_s = SYSTEM_CLOCK.monotonic_s() - emptied_s
            last_s = last_acknowledgement_s(world) - emptied_s
            print(f"last acknowledgement after {last_s:.1f} s, all ended after {took_s:.1f} s")
            assert last_s <= CHECK_EVERY_S + SLACK_S
            for broker in brokers:
                assert broker.process is not None
                assert broker.process.returncode == 1
                assert "the root was emptied" in broker.log.splitlines()[-1]
            world.load.give_up()
            clients_get_errors(world.cluster.bootstrap)

            begin_again(world.cluster)
            eventually(lambda: all(map(ended, brokers)), "all brokers have ended again")
            for broker in brokers:
                assert REFUSED in broker.log.splitlines()[-1]
            assert not [key for key in keys(store) if key.startswith(METADATA)]

            empty(store)
            begin_again(world.cluster)
            eventually(
                lambda: sum(NEW_LOG in since_refusal(broker) for broker in brokers) == 1,
                "a broker reports a new log",
            )
            assert not any(f"cluster_id={cluster_id}" in since_refusal(b) for b in brokers)
        store.close()


def clients_get_errors(bootstrap: str) -> None:
    errors = []
    producer = Producer(
        {"bootstrap.servers": bootstrap, "message.timeout.ms": 2000, "log_level": 2}
    )
    producer.produce("events", b"x", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors != [None]
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=2)
