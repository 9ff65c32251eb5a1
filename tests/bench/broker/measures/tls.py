"""TLS: producing and consuming over it, and a load beside many clients that reconnect.

Both clusters have a plain listener, which brokers and administration use, and one with TLS. Each
round measures both listeners, so that a figure shows what TLS costs each system.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import sparklog
from tests.bench.broker.measures.consuming import consume
from tests.bench.broker.measures.producing import MB, new_topic
from tests.bench.broker.perf_tools import produce
from tests.bench.broker.plan import BrokerPlan
from tests.bench.common.clusters import kafka_cluster, sparklog_cluster
from tests.bench.common.results import Measure, Results
from tests.bench.common.rounds import turns
from tests.bench.common.side import Side
from tests.bench.common.targets import RateTimesPeer
from tests.harness.certificates import CertificateAuthority
from tests.peers.kafka import HOST
from tests.peers.sparklog import LAUNCHER

GROUP = "TLS, MB/s"
RECONNECTS_GROUP = "beside TLS reconnects, ms"
LISTENER = "TLS"
SHARE_OF_KAFKA = 0.8
RECONNECTING_CLIENTS = 8
LOAD_RECORDS_PER_S = 2_000


@dataclass(frozen=True)
class TlsSide:
    """A cluster and its second listener."""

    side: Side
    bootstrap: str
    authority: Path

    @property
    def java(self) -> dict[str, str]:
        """Return the settings of a Java client."""
        return {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority),
        }

    @property
    def librdkafka(self) -> dict[str, str]:
        """Return the settings of librdkafka."""
        return {"security.protocol": "SSL", "ssl.ca.location": str(self.authority)}


@contextmanager
def tls_clusters(names: Collection[str], work: Path) -> Iterator[list[TlsSide]]:
    """Start the clusters that take part, each with a plain listener and one with TLS."""
    work.mkdir(parents=True, exist_ok=True)
    issuer = CertificateAuthority()
    authority = work / "ca.pem"
    authority.write_text(issuer.pem)
    store = issuer.issue("broker", HOST, "localhost").write(work / "broker.pem")
    settings = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}
    with ExitStack() as stack:
        sides = []
        if "sparklog" in names:
            sides.append(stack.enter_context(_ours(work, settings, authority)))
        if "kafka" in names:
            sides.append(stack.enter_context(_kafka(work, settings, authority)))
        yield sides


@contextmanager
def _ours(work: Path, settings: Mapping[str, str], authority: Path) -> Iterator[TlsSide]:
    words = [word for name, text in settings.items() for word in ("--config", f"{name}={text}")]
    more = ("--protocol", "PLAINTEXT", "--listener", f"{LISTENER}=SSL://{HOST}:0")
    with sparklog_cluster(work / "sparklog", LAUNCHER, *words, *more) as side:
        with sparklog.open_log(side.cluster.root) as log:
            found = [broker.at(LISTENER) for broker in log.refresh().live_brokers()]
        bootstrap = ",".join(f"{one.host}:{one.port}" for one in found if one is not None)
        yield TlsSide(side, bootstrap, authority)


@contextmanager
def _kafka(work: Path, settings: Mapping[str, str], authority: Path) -> Iterator[TlsSide]:
    with kafka_cluster(work, settings, {LISTENER: "SSL"}) as side:
        yield TlsSide(side, side.cluster.bootstrap_of(LISTENER), authority)


def measure_tls(sides: Sequence[TlsSide], plan: BrokerPlan, results: Results) -> None:
    """Measure rates with TLS and without, then the latency of a load beside reconnects."""
    target = (RateTimesPeer("kafka", SHARE_OF_KAFKA),)
    shape = plan.large
    for number, one in turns(sides, plan.rounds):
        side = one.side
        for is_tls in (False, True):
            ending = ", TLS" if is_tls else ""
            bootstrap = one.bootstrap if is_tls else side.bootstrap
            targets = target if is_tls else ()
            java = one.java if is_tls else {}
            librdkafka = one.librdkafka if is_tls else {}
            topic = new_topic(side, plan.partitions, 3)
            made = produce(bootstrap, topic, shape.records, shape.value_bytes, settings=java)
            rate = made.records_per_s * shape.value_bytes / MB
            measure = Measure(f"produce {shape.label}, RF 3{ending}", "MB/s", targets, GROUP)
            results.add(measure, side.name, rate, number)
            seconds = consume(
                side, topic, plan.partitions, shape.records, bootstrap, settings=librdkafka
            )
            measure = Measure(f"consume {shape.label}{ending}", "MB/s", targets, GROUP)
            results.add(measure, side.name, shape.total_bytes / seconds / MB, number)
            side.drop(topic)
    for number, one in turns(sides, plan.rounds):
        _measure_reconnects(one, plan, results, number)


def _measure_reconnects(one: TlsSide, plan: BrokerPlan, results: Results, number: int) -> None:
    side, shape = one.side, plan.large
    topic = new_topic(side, plan.partitions, 3)
    load = partial(
        produce,
        one.bootstrap,
        topic,
        LOAD_RECORDS_PER_S * plan.latency_seconds,
        shape.value_bytes,
        records_per_s=LOAD_RECORDS_PER_S,
        settings=one.java,
    )
    load()  # warms both ends
    alone = load()
    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(load)
        time.sleep(2)  # the load connects; its process reports nothing before its end
        seconds = _reconnect(one, plan.reconnects)
        loaded = beside.result()
    for what, value in (("alone", alone.p99_ms), ("beside reconnects", loaded.p99_ms)):
        measure = Measure(f"p99 of a load with TLS, {what}", "ms", (), RECONNECTS_GROUP)
        results.add(measure, side.name, value, number)
    rate = Measure("TLS handshakes beside a load", "1/s", (), "TLS handshakes")
    results.add(rate, side.name, plan.reconnects / seconds, number)
    side.drop(topic)


def _reconnect(one: TlsSide, count: int) -> float:
    """Connect `count` times from a few threads; return the seconds it took."""
    context = ssl.create_default_context(cafile=str(one.authority))
    places = [address.rpartition(":") for address in one.bootstrap.split(",")]

    def connect(turn: int) -> None:
        host, _, port = places[turn % len(places)]
        with socket.create_connection((host, int(port)), 60) as plain:
            context.wrap_socket(plain, server_hostname=host).close()

    start = time.perf_counter()
    with ThreadPoolExecutor(RECONNECTING_CLIENTS) as pool:
        for done in pool.map(connect, range(count)):
            assert done is None
    return time.perf_counter() - start
