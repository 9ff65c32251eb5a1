"""Wrong logins: a load of other clients beside a thousand wrong logins a second."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import sparklog
from tests.bench.broker.measures.idle import resident_bytes
from tests.bench.broker.measures.producing import new_topic
from tests.bench.broker.perf_tools import Produced, produce
from tests.bench.broker.plan import BrokerPlan
from tests.bench.broker.wrong_logins import NO_TLS, PLAIN, USER
from tests.bench.common.clusters import sparklog_cluster
from tests.bench.common.results import Measure, Results
from tests.bench.common.side import Side
from tests.bench.common.targets import CostAtMost
from tests.harness.certificates import CertificateAuthority
from tests.peers.kafka import HOST
from tests.peers.sparklog import LAUNCHER

GROUP = "beside 1,000 wrong logins a second"
GUESSES_PER_S = 1000
LOAD_RECORDS_PER_S = 2_000
TIMES_ALONE = 2.0
STORMS = (
    ("SCRAM-SHA-512", "CLEAR"),
    (PLAIN, "CLEAR"),
    ("SCRAM-SHA-512", "TLS"),
)
"""Mechanism and listener."""
SETTINGS = {
    "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
    "sparklog.sasl.plain.allow.cleartext": "true",
}
MIB = 1 << 20


@dataclass(frozen=True)
class GuessedSide:
    """A cluster, and the addresses of its listeners with logins."""

    side: Side
    addresses: dict[str, str]
    authority: Path


@contextmanager
def guessed_cluster(work: Path) -> Iterator[GuessedSide]:
    """Start brokers with a plain listener, and two with logins."""
    work.mkdir(parents=True, exist_ok=True)
    issuer = CertificateAuthority()
    authority = work / "ca.pem"
    authority.write_text(issuer.pem)
    store = issuer.issue("broker", HOST, "localhost").write(work / "broker.pem")
    given = {**SETTINGS, "ssl.keystore.location": str(store)}
    words = [word for name, text in given.items() for word in ("--config", f"{name}={text}")]
    words += ["--protocol", "PLAINTEXT", "--listener", f"CLEAR=SASL_PLAINTEXT://{HOST}:0"]
    words += ["--listener", f"TLS=SASL_SSL://{HOST}:0"]
    with sparklog_cluster(work / "sparklog", LAUNCHER, *words) as side:
        with sparklog.open_log(side.cluster.root) as log:
            log.set_password(USER, "the right one")
            live = list(log.refresh().live_brokers())
        addresses = {}
        for name in ("CLEAR", "TLS"):
            found = [broker.at(name) for broker in live]
            addresses[name] = ",".join(f"{one.host}:{one.port}" for one in found if one is not None)
        yield GuessedSide(side, addresses, authority)


def measure_logins(one: GuessedSide, plan: BrokerPlan, results: Results) -> None:
    """Measure the latency of a load alone, and beside each kind of wrong logins."""
    side, shape = one.side, plan.large
    topic = new_topic(side, plan.partitions, 3)
    load = partial(
        produce,
        side.bootstrap,
        topic,
        LOAD_RECORDS_PER_S * plan.latency_seconds,
        shape.value_bytes,
        records_per_s=LOAD_RECORDS_PER_S,
    )
    load()  # warms both ends
    for number in range(plan.rounds):
        alone = load().p99_ms
        results.add(_measure("p99 of a load alone", "ms"), side.name, alone, number)
        for mechanism, listener in STORMS:
            _measure_storm(one, load, alone, mechanism, listener, plan, results, number)
    side.drop(topic)


def _measure_storm(
    one: GuessedSide,
    load: Callable[[], Produced],
    alone_ms: float,
    mechanism: str,
    listener: str,
    plan: BrokerPlan,
    results: Results,
    number: int,
) -> None:
    side, kind = one.side, f"{mechanism}, {listener}"
    pids = side.pids()
    cpu_s, memory = _cpu_seconds(pids), resident_bytes(pids)
    seconds = plan.latency_seconds + 5
    with ThreadPoolExecutor(1) as pool:
        guesses = pool.submit(_guess, one, mechanism, listener, seconds)
        p99_ms = load().p99_ms
        tried, rejected = guesses.result()
    results.add(_measure(f"p99 of a load, {kind}", "ms"), side.name, p99_ms, number)
    target = (CostAtMost(TIMES_ALONE, "x"),)
    times = Measure(f"p99 of a load, times alone, {kind}", "x", target, GROUP)
    results.add(times, side.name, p99_ms / alone_ms, number)
    results.add(_measure(f"logins rejected, {kind}", "1/s"), side.name, rejected / seconds, number)
    lost = _measure(f"logins without an answer, {kind}", "logins")
    results.add(lost, side.name, tried - rejected, number)
    cores = (_cpu_seconds(pids) - cpu_s) / seconds
    results.add(_measure(f"cores of three brokers, {kind}", "cores"), side.name, cores, number)
    grown = (resident_bytes(pids) - memory) / MIB
    results.add(_measure(f"memory grown, {kind}", "MiB"), side.name, grown, number)


def _measure(name: str, unit: str) -> Measure:
    return Measure(name, unit, (), GROUP)


def _guess(one: GuessedSide, mechanism: str, listener: str, seconds: float) -> tuple[int, int]:
    """Fail to log in from another process; return the tries and those that were rejected."""
    authority = str(one.authority) if listener == "TLS" else NO_TLS
    words = [one.addresses[listener], authority, mechanism, str(GUESSES_PER_S), str(seconds)]
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.broker.wrong_logins", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    return found["tried"], found["rejected"]


def _cpu_seconds(pids: Sequence[int]) -> float:
    """Return the processor time that processes have used."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
