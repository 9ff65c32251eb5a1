"""Wrong logins: a load of other clients beside a thousand wrong logins a second.

The programs that guess share the machine with the brokers and the load. So each load also runs
beside the same guesses at a bare server, which rejects them without a check. The difference is what
brokers do to their clients for wrong logins.

The steady load must stay within twice its p99 alone. Its first seconds are those of a JVM that
compiles itself, and their p99 differs threefold between rounds without a guess. So the whole load
is compared with the one beside the bare server, in the same round.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import sparklog
from tests.bench.broker.measures.idle import resident_bytes
from tests.bench.broker.measures.producing import new_topic
from tests.bench.broker.perf_tools import Paced, produce_paced
from tests.bench.broker.plan import BrokerPlan
from tests.bench.broker.wrong_logins import NO_TLS, PLAIN, REJECTED, UNANSWERED, USER
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
FIRST_S = 3
"""The load's first seconds, in which its JVM compiles, are not part of the steady figures."""
ROUNDS_MIN = 3
"""The p99 of one round is the length of its longest pause, as a rule."""
TIMES_MAX = 2.0
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
PROGRAM = (sys.executable, "-m", "tests.bench.broker.wrong_logins")


@dataclass(frozen=True)
class GuessedSide:
    """A cluster, and the addresses of its listeners with logins."""

    side: Side
    addresses: dict[str, str]
    authority: Path
    certificate: Path


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
        yield GuessedSide(side, addresses, authority, store)


def measure_logins(one: GuessedSide, plan: BrokerPlan, results: Results) -> None:
    """Measure the latency of a load alone, and beside each kind of wrong logins."""
    side = one.side
    topic = new_topic(side, plan.partitions, 3)
    _load(side, topic, plan)  # warms both ends
    for number in range(max(ROUNDS_MIN, plan.rounds)):
        cpu_s, start_s = _cpu_seconds(side.pids()), time.perf_counter()
        alone = _load(side, topic, plan)
        cores = (_cpu_seconds(side.pids()) - cpu_s) / (time.perf_counter() - start_s)
        results.add(_measure("p99 of a load alone", "ms"), side.name, alone.whole.p99_ms, number)
        steady = _measure("p99 of a steady load alone", "ms")
        results.add(steady, side.name, alone.steady.p99_ms, number)
        results.add(_measure("cores of three brokers alone", "cores"), side.name, cores, number)
        for mechanism, listener in STORMS:
            storm = _Storm(one, topic, plan, mechanism, listener)
            storm.measure(alone, results, number)
    side.drop(topic)


def _load(side: Side, topic: str, plan: BrokerPlan) -> Paced:
    return produce_paced(
        side.bootstrap,
        topic,
        LOAD_RECORDS_PER_S * plan.latency_seconds,
        plan.large.value_bytes,
        records_per_s=LOAD_RECORDS_PER_S,
        first_records=LOAD_RECORDS_PER_S * FIRST_S,
    )


@dataclass(frozen=True)
class _Storm:
    """Wrong logins of one mechanism at one listener, beside a load."""

    one: GuessedSide
    topic: str
    plan: BrokerPlan
    mechanism: str
    listener: str

    def measure(self, alone: Paced, results: Results, number: int) -> None:
        """Measure the load beside a bare server, then beside the brokers' listener."""
        side, kind = self.one.side, f"{self.mechanism}, {self.listener}"

        def add(name: str, unit: str, value: float) -> None:
            results.add(_measure(f"{name}, {kind}", unit), side.name, value, number)

        with _bare_server(self._certificate) as address:
            bare, _ = self._beside(address)
        pids = side.pids()
        cpu_s, memory, start_s = _cpu_seconds(pids), resident_bytes(pids), time.perf_counter()
        loaded, tries = self._beside(self.one.addresses[self.listener])
        cores = (_cpu_seconds(pids) - cpu_s) / (time.perf_counter() - start_s)
        add("p99 of a load", "ms", loaded.whole.p99_ms)
        add("p99 of a load beside a bare server", "ms", bare.whole.p99_ms)
        add("p99 of a steady load", "ms", loaded.steady.p99_ms)
        add("p99 of a steady load beside a bare server", "ms", bare.steady.p99_ms)
        add("p99 of a load, times alone", "x", loaded.whole.p99_ms / alone.whole.p99_ms)
        aims = {
            "steady load, times alone": loaded.steady.p99_ms / alone.steady.p99_ms,
            "load, times beside a bare server": loaded.whole.p99_ms / bare.whole.p99_ms,
        }
        for name, times in aims.items():
            aim = Measure(f"p99 of a {name}, {kind}", "x", (CostAtMost(TIMES_MAX, "x"),), GROUP)
            results.add(aim, side.name, times, number)
        add("logins rejected", "1/s", tries[REJECTED] / self._seconds)
        add("logins without an answer", "1/s", tries[UNANSWERED] / self._seconds)
        add("logins that did not end", "logins",
            tries["tried"] - tries[REJECTED] - tries[UNANSWERED])  # fmt: skip
        add("cores of the guesses", "cores", tries["cores"])
        add("cores of three brokers", "cores", cores)
        add("memory grown", "MiB", (resident_bytes(pids) - memory) / MIB)

    @property
    def _seconds(self) -> float:
        return self.plan.latency_seconds + 5

    @property
    def _certificate(self) -> str:
        return str(self.one.certificate) if self.listener == "TLS" else NO_TLS

    def _beside(self, addresses: str) -> tuple[Paced, dict[str, float]]:
        """Run the load while another process guesses at `addresses`."""
        authority = str(self.one.authority) if self.listener == "TLS" else NO_TLS
        words = (addresses, authority, self.mechanism, str(GUESSES_PER_S), str(self._seconds))
        with ThreadPoolExecutor(1) as pool:
            guesses = pool.submit(_guess, words)
            load = _load(self.one.side, self.topic, self.plan)
            return load, guesses.result()


@contextmanager
def _bare_server(certificate: str) -> Iterator[str]:
    """Run a server that rejects logins without a check; yields its address."""
    words = (*PROGRAM, "reject", certificate)
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        yield f"{HOST}:{int(server.stdout.readline())}"
        server.stdin.close()


def _measure(name: str, unit: str) -> Measure:
    return Measure(name, unit, (), GROUP)


def _guess(words: Sequence[str]) -> dict[str, float]:
    """Fail to log in from another process; return its figures."""
    done = subprocess.run((*PROGRAM, "guess", *words), capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _cpu_seconds(pids: Sequence[int]) -> float:
    """Return the processor time that processes have used."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")
