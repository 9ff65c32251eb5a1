"""SparklogCluster: a cluster of brokers in this process, with faults on request.

    with SparklogCluster(brokers=3) as cluster:
        cluster.topic("orders", partitions=3)
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        cluster.kill(cluster.leader("orders"))

Brokers are whole: real sockets on loopback, one event loop and thread each, and one store for all.
A proxy stands in front of each. So a broker keeps its address when it starts again, and links can
be cut. A cluster whose `config` sets `listeners` has no proxies.

Methods are for one thread at a time. Times are seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Final, Self

from sparklog.broker.runtime.environment import Address
from sparklog.broker.runtime.identity import Ready
from sparklog.client.admin import Admin
from sparklog.client.consumer import Consumer, Record
from sparklog.client.metadata import ClusterMetadata
from sparklog.client.producer import Delivered, Producer
from sparklog.client.values import EARLIEST
from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.entropy import SYSTEM_ENTROPY, new_nonce
from sparklog.core.types import TopicPartition
from sparklog.log.layout import topic_of_key
from sparklog.store.base import ObjectStore
from sparklog.store.memory import forget_memory_store
from sparklog.store.open import open_store
from sparklog.store.retrying import RetryingStore
from sparklog.store.root_url import parse_root_url
from sparklog.store.settings import StoreSettings
from sparklog.testing.broker_thread import BrokerThread
from sparklog.testing.cluster_view import has_leaders, is_settled, metadata_of, wait_for
from sparklog.testing.faulty_store import FaultyStore
from sparklog.testing.store_faults import ClusterStoreFaults
from sparklog.testing.wire_proxy import WireProxy

logger = logging.getLogger(__name__)

LISTENER: Final = "PLAINTEXT://127.0.0.1"
QUICK: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "share.coordinator.state.topic.num.partitions": "2",
}
"""Settings that differ from Kafka's: a test does not wait for more members of a group."""
PROMPT: Final = {"fetch.wait.max.ms": "10"}
"""A reader that has all records waits for no more, and ends at once."""
STARTS_WITHIN_S: Final = 150.0
WITHIN_S: Final = 30.0


class SparklogCluster:
    """Brokers 1 to `brokers`. A context manager that starts all and ends all."""

    def __init__(
        self,
        brokers: int = 1,
        *,
        config: Mapping[str, str] | None = None,
        root: str | None = None,
        security: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare a cluster; `with` starts it.

        Args:
            brokers: their number.
            config: settings of every broker, under Kafka's names.
            root: where the log is kept, as `sparklog.open_log` takes it. The cluster then ends in
                good order, and another one may go on with the log. None: memory, for this cluster.
            security: a client's settings for the listener by which brokers reach each other.

        Raises:
            ValueError: less than one broker.
        """
        if brokers < 1:
            raise ValueError(f"a cluster has one broker or more. brokers={brokers}")
        self._is_own_root = root is None
        self.root: Final = root or f"memory://test-{new_nonce(SYSTEM_ENTROPY)}"
        """Root of the log; `sparklog.open_log` in this process reads it."""
        self.store: Final = ClusterStoreFaults()
        """Faults of the store."""
        self._config = {**QUICK, **(config or {})}
        self._security = dict(security or {})
        self._runs: dict[int, BrokerThread] = {}
        self._proxies: dict[int, WireProxy] = {}
        self._unanswered: set[int] = set()
        """Brokers that clients do not reach."""
        self.broker_ids: Final = tuple(range(1, brokers + 1))

    def __enter__(self) -> Self:
        """Start all brokers, and wait until each knows all.

        Raises:
            InvalidConfig: a wrong setting. TimeoutError: a broker does not serve.
        """
        try:
            if "listeners" not in self._config:
                self._proxies = {one: WireProxy() for one in self.broker_ids}
            for one in self.broker_ids:
                self._begin(one)
            for one in self.broker_ids:
                self._runs[one].wait_until_ready(STARTS_WITHIN_S)
            self.wait_until_stable(STARTS_WITHIN_S)
        except BaseException:
            self._end(in_order=False)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End all brokers. A memory root is dropped; else they hand over first.

        Raises:
            SparklogError: a broker had ended by itself, and the test saw no error.
        """
        failed = self._end(in_order=not self._is_own_root and error is None)
        if failed and error is None:
            raise failed[0]

    @property
    def bootstrap_servers(self) -> str:
        """Return the addresses of all brokers, dead ones too, as clients take them."""
        return ",".join(map(self.address, self.broker_ids))

    @property
    def ready(self) -> Sequence[Ready]:
        """Return the addresses that each broker reported when it last started, by id."""
        return [run.ready for _, run in sorted(self._runs.items()) if run.ready is not None]

    def address(self, broker_id: int) -> str:
        """Return `host:port` of a broker."""
        ready = self._run(broker_id).ready
        assert ready is not None, "brokers serve since the cluster started"
        return str(Address(ready.host, ready.port))

    def topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic, and return its name once every broker knows its leaders.

        Args:
            name: of the topic.
            partitions: their number.
            replication_factor: replicas of a partition; None: three, or one on each broker.
            config: settings of the topic, under Kafka's names.

        Raises:
            TopicAlreadyExists, InvalidTopic, InvalidConfig: see `sparklog.Admin.create_topic`.
        """
        with Admin(self._answering_servers(), settings=self._security) as admin:
            admin.create_topic(name, partitions, config, replication_factor)
        serving = self._serving()

        def is_known(broker_id: int) -> bool:
            view = self._view(broker_id)
            return view is not None and has_leaders(view, name, serving)

        for one in self._answering():
            what = f"broker {one} knows the leaders of {name}"
            wait_for(partial(is_known, one), what, WITHIN_S)
        return name

    def leader(self, topic: str, partition: int = 0, *, timeout_s: float = WITHIN_S) -> int:
        """Return the live broker that leads a partition, once there is one.

        Raises:
            TimeoutError: none leads it, or there is no such partition.
        """

        def look() -> int | None:
            serving = self._serving()
            for one in self._answering():
                found = (view := self._view(one)) and view.topics.get(topic)
                if found and partition < found.partitions:
                    led_by = found.partition_states[partition].leader
                    return led_by if led_by in serving else None
            return None

        return wait_for(look, f"a broker leads {topic}-{partition}", timeout_s)

    def produce(
        self, topic: str, values: Sequence[bytes], *, key: bytes | None = None
    ) -> list[Delivered]:
        """Write records, and return their offsets once all are acknowledged by all replicas.

        Raises:
            SparklogError: a record was not acknowledged.
        """
        with Producer(self._answering_servers(), settings=dict(self._security)) as producer:
            deliveries = [producer.send(topic, value, key=key) for value in values]
            return [delivery.result() for delivery in deliveries]

    def consume(self, topic: str, count: int = 0, *, timeout_s: float = WITHIN_S) -> list[Record]:
        """Return the committed records of a topic, sorted by partition and offset.

        Args:
            topic: its name.
            count: waits until there are at least `count` records. 0: returns those that are there.
            timeout_s: the longest wait for records that are not there yet.

        Raises:
            AssertionError: fewer within `timeout_s`; the message has those that are there.
            UnknownTopicOrPartition: no such topic.
        """
        servers = self._answering_servers()
        with Admin(servers, settings=self._security) as admin:
            partitions = range(admin.topic(topic).partitions)
        starts = {TopicPartition(topic, number): EARLIEST for number in partitions}
        deadline_s = SYSTEM_CLOCK.monotonic_s() + timeout_s
        found: list[Record] = []
        settings = {**self._security, **PROMPT}
        with Consumer(servers, settings=settings) as consumer:
            consumer.assign(starts)
            while len(found) < count or not starts.keys() <= consumer.ends_reached:
                # On a busy machine, records that are there may take a while, too.
                has_all = starts.keys() <= consumer.ends_reached
                if SYSTEM_CLOCK.monotonic_s() >= deadline_s + (0.0 if has_all else WITHIN_S):
                    values = [record.value for record in found]
                    raise AssertionError(f"{topic} has {len(found)} of {count} records: {values}")
                found += consumer.poll(timeout_s=0.1)
        return sorted(found, key=lambda record: (record.topic_partition, record.offset))

    def kill(self, broker_id: int) -> None:
        """End a broker at once: it hands nothing over, and its connections break.

        Others notice by themselves. `wait_until_stable` waits for that.
        """
        run = self._live_run(broker_id)
        if broker_id in self._proxies:
            self._proxies[broker_id].lead_to(None)
            self._proxies[broker_id].disconnect()
        run.begin_to_die()
        run.wait_until_ended()

    def stop(self, broker_id: int) -> None:
        """Have a broker hand over what it leads, and end."""
        run = self._live_run(broker_id)
        run.begin_to_leave()
        run.wait_until_ended()
        if broker_id in self._proxies:
            self._proxies[broker_id].lead_to(None)

    def start(self, broker_id: int) -> None:
        """Start a broker that was killed or stopped, at the same address; wait until it serves.

        Raises:
            ValueError: it is alive.
        """
        if self._run(broker_id).is_alive:
            raise ValueError(f"the broker is alive: kill or stop it first. broker_id={broker_id}")
        self._begin(broker_id)
        self._runs[broker_id].wait_until_ready(STARTS_WITHIN_S)

    def restart(self, broker_id: int) -> None:
        """Stop a broker in good order, and start it again."""
        self.stop(broker_id)
        self.start(broker_id)

    def pause(self, broker_id: int) -> None:
        """Have a broker do nothing until `resume`: connections stay open and get no answer.

        After `broker.session.timeout.ms`, 3 s, the others depose it.
        """
        self._live_run(broker_id).pause()

    def resume(self, broker_id: int) -> None:
        """End a pause."""
        self._live_run(broker_id).resume()

    def cut(self, broker_id: int, other_id: int) -> None:
        """Hold back everything between two brokers, as a network that drops packets, until `heal`.

        Raises:
            ValueError: `config` has listeners, which no proxy serves.
        """
        self._proxy(broker_id).cut(f"broker-{other_id}")
        self._proxy(other_id).cut(f"broker-{broker_id}")

    def cut_clients(self, broker_id: int) -> None:
        """Hold back everything between a broker and all clients, until `heal`.

        Raises:
            ValueError: `config` has listeners, which no proxy serves.
        """
        self._proxy(broker_id).cut_clients()
        self._unanswered.add(broker_id)

    def heal(self) -> None:
        """Mend all links and the store, and end all pauses. Dead brokers stay dead."""
        self.store.heal()
        for proxy in self._proxies.values():
            proxy.heal()
        self._unanswered.clear()
        for run in self._runs.values():
            run.resume()

    def wait_until_stable(self, timeout_s: float = WITHIN_S) -> None:
        """Wait until the brokers agree about who serves, and serve all topics.

        Every broker that is alive, not paused and within clients' reach then lists the same
        brokers. Each partition has a leader among them, and its live replicas are in sync.

        Raises:
            TimeoutError: they do not agree in time.
        """

        def agrees(broker_id: int) -> bool:
            view = self._view(broker_id)
            return view is not None and is_settled(view, self._serving())

        for one in self._answering():
            what = f"broker {one} serves with the brokers {sorted(self._serving())}"
            wait_for(partial(agrees, one), what, timeout_s)

    def _serving(self) -> set[int]:
        return {one for one, run in self._runs.items() if run.is_alive and not run.is_paused}

    def _answering(self) -> list[int]:
        return sorted(self._serving() - self._unanswered)

    def _answering_servers(self) -> str:
        return ",".join(map(self.address, self._answering()))

    def _view(self, broker_id: int) -> ClusterMetadata | None:
        return metadata_of(self.address(broker_id), self._security)

    def _run(self, broker_id: int) -> BrokerThread:
        run = self._runs.get(broker_id)
        if run is None:
            raise ValueError(f"no such broker. broker_id={broker_id} known={self.broker_ids}")
        return run

    def _live_run(self, broker_id: int) -> BrokerThread:
        run = self._run(broker_id)
        if not run.is_alive:
            raise ValueError(f"the broker is not alive. broker_id={broker_id}")
        return run

    def _proxy(self, broker_id: int) -> WireProxy:
        self._run(broker_id)
        if broker_id not in self._proxies:
            raise ValueError("links of a cluster whose config sets listeners cannot be cut.")
        return self._proxies[broker_id]

    def _begin(self, broker_id: int) -> None:
        configs = {**self._config, "node.id": str(broker_id)}
        proxy = self._proxies.get(broker_id)
        if proxy is not None:
            configs["listeners"] = f"{LISTENER}:0"
            configs["advertised.listeners"] = f"{LISTENER}:{proxy.port}"
        run = BrokerThread(
            self.root,
            configs,
            open_store=self._open_store,
            listening=partial(self._listening, broker_id),
        )
        self._runs[broker_id] = run
        run.start()

    def _listening(self, broker_id: int, bound: Address) -> None:
        if broker_id in self._proxies:
            self._proxies[broker_id].lead_to(bound.port)

    def _open_store(self, root: str) -> ObjectStore:
        inner = open_store(root, label_of=topic_of_key)
        faulty = FaultyStore(inner, self.store.plan, clock=SYSTEM_CLOCK, entropy=SYSTEM_ENTROPY)
        return RetryingStore(
            faulty, inner.counters, StoreSettings(), clock=SYSTEM_CLOCK, entropy=SYSTEM_ENTROPY
        )

    def _end(self, *, in_order: bool) -> list[BaseException]:
        """End all brokers together; return the errors of those that failed."""
        self.heal()
        failed: list[BaseException] = []
        running = [run for run in self._runs.values() if run.is_alive]
        failed += [run.failed for run in self._runs.values() if run.failed is not None]
        for run in running:
            if in_order:
                run.begin_to_leave()
            else:
                run.begin_to_die()
        for run in running:
            try:
                run.wait_until_ended()
            except Exception as error:
                logger.warning("a broker did not end well %s", error)
                failed.append(error)
        for proxy in self._proxies.values():
            proxy.close()
        if self._is_own_root:
            forget_memory_store(parse_root_url(self.root).path)
        return failed
