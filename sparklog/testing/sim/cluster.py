"""SimCluster: a cluster in a simulated world, with clients and faults from one seed.

A run has four parts. In the calm all brokers start, the topic is created, and clients begin. The
storm has faults. While healing there are no faults, and every send must be acknowledged. The
checker then examines the history after a final read. Unless the plan names the kinds of faults, the
seed selects them, so that rare mixes occur. Durations are virtual seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from sparklog.broker.runtime.environment import Address, Environment
from sparklog.broker.runtime.request import RequestContext
from sparklog.core.entropy import SeededEntropy
from sparklog.core.errors import Fenced, SparklogError
from sparklog.testing.history import (
    Anomaly,
    GroupLog,
    Poll,
    Send,
    check,
    check_group,
    check_transactions,
)
from sparklog.testing.sim.access import CONFIGS as GUARDED_CONFIGS
from sparklog.testing.sim.access import (
    GUARDED_HOST,
    AccessChanges,
    AccessLog,
    GuardedReader,
)
from sparklog.testing.sim.clients import TIMEOUTS_S, ClientSide, Recorder, SimConsumer, SimProducer
from sparklog.testing.sim.faults import FAULTS, Nemesis
from sparklog.testing.sim.groups import SimGroupConsumer, SimMember
from sparklog.testing.sim.leader_acks import LeaderAcksProducer
from sparklog.testing.sim.network import SimNet, SimNetwork
from sparklog.testing.sim.store import SimObjects, SimStore, StoreFaults
from sparklog.testing.sim.transactions import CommittedConsumer, SimTransactions, TransactionLog
from sparklog.testing.virtual_loop import (
    WORLD,
    Process,
    ProcessState,
    SimulationStuck,
    new_virtual_loop,
)
from sparklog.testing.virtual_world import Trace, VirtualClock, VirtualCompute

TOPIC: Final = "events"
RESTART_S: Final = 0.5
"""Delay before the restart of a broker whose process ended by itself."""


class SimNode(Protocol):
    """A broker in the cluster."""

    async def run(self) -> None:
        """Start, and serve until the process ends. Returning or raising ends the process."""
        ...

    async def stop(self) -> None:
        """Hand over all partitions, then make `run` return."""
        ...

    async def handle(self, request: Any, context: RequestContext) -> Any:
        """Return the response to a request entity of this client."""
        ...


@dataclass(frozen=True, slots=True)
class BrokerSide:
    """The environment of a simulated broker."""

    broker_id: int
    address: Address
    environment: Environment
    configs: tuple[tuple[str, str], ...] = ()
    """Settings beside the usual ones."""


MakeNode = Callable[[BrokerSide], SimNode]
Invariant = Callable[["SimCluster", Process | None], None]
"""Checks the cluster after a step of a process, or of the world; raises AssertionError."""
Epilogue = Callable[["SimCluster"], Iterable[str]]
"""Checks the whole cluster after a run; returns the faults found."""


@dataclass(frozen=True, slots=True)
class SimPlan:
    """Size and shape of a run."""

    brokers: int = 3
    partitions: int = 2
    replication_factor: int = 3
    configs: tuple[tuple[str, str], ...] = ()
    """Settings of the topic."""
    store_latency_s: float = 0.01
    """Latency of one direction, without faults."""
    producers: int = 2
    leader_acks: int = 0
    """Additional producers with acks=1."""
    consumers: int = 1
    transactional: int = 0
    """Transactional producers; two share an id."""
    members: int = 0
    """Members of a classic group."""
    group_consumers: int = 0
    """Members of a group with the newer protocol."""
    guarded: bool = False
    """True: brokers have an authorizer, and a reader whose right comes and goes."""
    pause_s: float = 0.1
    """Average pause between two batches of one producer to one partition."""
    calm_s: float = 1.0
    storm_s: float = 6.0
    fault_every_s: float = 0.7
    fault_lasts_s: float = 1.5
    """Average duration of a fault."""
    heal_s: float = 60.0
    """Limit for healing, and for the final read."""
    faults: tuple[str, ...] | None = None
    """Kinds of faults; None lets the seed select them."""
    spare: tuple[str, ...] = ()
    """Kinds of faults that the seed never selects."""
    rest_s: float | None = None
    """If given, each fault begins only this long after the previous one ended.

    A twin fault ends when one process with its broker id is left, which may take long. Until then,
    each process that registers replaces the previous one, whose memory is lost.
    """


@dataclass(slots=True)
class SimBroker:
    """One broker id, with all of its processes."""

    broker_id: int
    address: Address
    incarnations: list[tuple[Process, SimNode]] = field(default_factory=list)
    """All its processes, oldest first. Older ones may still run, deposed."""
    twinned: bool = False
    """True if more than one process of it was started, and they compete for its id."""

    @property
    def process(self) -> Process | None:
        """Return the newest process."""
        return self.incarnations[-1][0] if self.incarnations else None

    @property
    def is_alive(self) -> bool:
        """Return True if the newest process runs or is paused."""
        return self.process is not None and self.process.state is not ProcessState.DEAD


@dataclass(slots=True)
class SimReport:
    """The result of a run."""

    seed: int
    faults: tuple[str, ...]
    digest: str
    steps: int
    virtual_s: float
    history: list[Send | Poll]
    anomalies: list[Anomaly]
    complaints: list[str]
    """All other violations."""
    trace: list[str] = field(default_factory=list)

    @property
    def failed(self) -> bool:
        """Return True if there was any violation."""
        return bool(self.anomalies or self.complaints)

    def summary(self, lines: int = 25) -> str:
        """Return the violations, and the last `lines` lines of the trace."""
        wrong = [*map(str, self.anomalies), *self.complaints]
        head = f"seed={self.seed} faults={','.join(self.faults)} steps={self.steps}"
        return "\n".join([head, *wrong[:40], "…", *self.trace[max(0, len(self.trace) - lines) :]])


class SimCluster:
    """Brokers, clients, store and network of one run."""

    def __init__(self, seed: int, plan: SimPlan, make_node: MakeNode) -> None:
        """Derive all randomness from `seed`."""
        self.seed = seed
        self.plan = plan
        self.loop = new_virtual_loop()
        self.trace = Trace(self.loop)
        self.store = SimObjects(self.loop, self.entropy("store"), self.trace)
        self.store.calm = self.store.faults = StoreFaults(latency_s=plan.store_latency_s)
        self.net = SimNet(self.loop, self.entropy("network"), self.trace)
        self.recorder = Recorder(self.loop)
        self.brokers = [SimBroker(n, Address(f"b{n}", 9092)) for n in range(plan.brokers)]
        self.nodes: dict[Process, SimNode] = {}
        """The node of every process, dead ones too."""
        self.invariants: list[Invariant] = []
        self.epilogues: list[Epilogue] = []
        self.complaints: list[str] = []
        self._make_node = make_node
        self._clients = Process(self.loop, "clients")
        self._producers: list[SimProducer | LeaderAcksProducer] = []
        self.transactions = TransactionLog()
        self._transactional: list[SimTransactions] = []
        self.groups = {kind.group: GroupLog() for kind in (SimMember, SimGroupConsumer)}
        self._members: list[SimMember] = []
        self.access = AccessLog(self.loop)
        self.nemesis = Nemesis(self, self.entropy("faults"))

    def entropy(self, purpose: str) -> SeededEntropy:
        """Return separate randomness for each purpose, so that one does not shift another."""
        return SeededEntropy(int.from_bytes(f"{self.seed}/{purpose}".encode(), "big"))

    def environment(self, host: str, purpose: str, process: Process | None = None) -> Environment:
        """Return the environment of a process on a host."""
        entropy = self.entropy(purpose)
        return Environment(
            store=SimStore(self.store, host, process),
            network=SimNetwork(self.net, host),
            clock=VirtualClock(self.loop),
            entropy=entropy,
            compute=VirtualCompute(entropy),
        )

    def start_broker(self, broker: SimBroker) -> None:
        """Start a broker's process, unless it has one."""
        if not broker.is_alive:
            self._start(broker)

    def start_twin(self, broker: SimBroker) -> None:
        """Start another process with a broker's id, at another port, beside the present one."""
        broker.address = Address(broker.address.host, broker.address.port + 1)
        broker.twinned = True
        self._start(broker)

    @property
    def has_twins(self) -> bool:
        """Return True if several processes compete for a broker id."""
        return any(
            process.state is not ProcessState.DEAD
            for broker in self.brokers
            for process, _ in broker.incarnations[:-1]
        )

    def stop_broker(self, broker: SimBroker) -> None:
        """Shut a broker down in a controlled way, if it is alive. It restarts afterwards."""
        if broker.is_alive:
            process, node = broker.incarnations[-1]
            process.spawn(node.stop())

    def _start(self, broker: SimBroker) -> None:
        self.trace.note("start", broker.address.host)
        process = Process(self.loop, broker.address.host)
        environment = self.environment(
            broker.address.host, f"{broker.broker_id}/{len(broker.incarnations)}", process
        )
        configs = GUARDED_CONFIGS if self.plan.guarded else ()
        side = BrokerSide(broker.broker_id, broker.address, environment, configs)
        node = self._make_node(side)
        broker.incarnations.append((process, node))
        self.nodes[process] = node
        serve = self.access.observing(node.handle) if self.plan.guarded else node.handle
        self.net.listen(broker.address, process, serve)
        process.spawn(self._incarnation(broker, process, node))

    async def _incarnation(self, broker: SimBroker, process: Process, node: SimNode) -> None:
        try:
            await node.run()
            self.trace.note("ended", process.name)
        except Exception as error:
            if not (broker.twinned and isinstance(error, Fenced)):  # one of the twins has to end
                self.complaints.append(f"broker {process.name} ended: {error!r}")
            self.trace.note("broke", process.name, repr(error))
        self.loop.call_later(RESTART_S, self._restart, broker, process, context=WORLD)
        process.kill()

    def _restart(self, broker: SimBroker, process: Process) -> None:
        if broker.process is process and not self.loop.closing:
            self.start_broker(broker)

    def kill_broker(self, broker: SimBroker) -> None:
        """Kill a broker's process, if it has one."""
        if broker.process is not None and broker.is_alive:
            self.trace.note("kill", broker.address.host)
            broker.process.kill()

    def side(self, name: str) -> ClientSide:
        """Return the environment of a client with that name. Every client has its own host."""
        entropy = self.entropy(name)
        return ClientSide(
            name,
            SimNetwork(self.net, name),
            lambda: [broker.address for broker in self.brokers],
            VirtualClock(self.loop),
            entropy,
            self.recorder,
            TIMEOUTS_S[int(entropy.random() * len(TIMEOUTS_S))],
        )

    def run(self) -> SimReport:
        """Run from start to end."""
        if self.invariants:
            self.loop.after_step = self._look
        anomalies: list[Anomaly] = []
        try:
            self.loop.run_until_complete(self._clients.spawn(self._scenario()))
        except (SimulationStuck, AssertionError) as error:
            self.complaints.append(f"{type(error).__name__}: {error}")
        else:
            anomalies = check(self.recorder.history)
            log = self.transactions
            anomalies += check_transactions(log.transactions, log.reads)
            for group in self.groups.values():
                anomalies += check_group(group)
            self.complaints += self.access.faults()
        digest, steps, virtual_s = self.trace.digest(), self.loop.steps, self.loop.time()
        for process in self.loop.processes:
            process.kill()
        for epilogue in self.epilogues:
            try:
                self.complaints += epilogue(self)
            except SparklogError as error:
                self.complaints.append(f"the log cannot be read in the end: {error!r}")
        complaints = [
            *self.complaints,
            *self.recorder.errors,
            *self.net.errors,
            *self.loop.complaints,
        ]
        self.loop.close()
        return SimReport(
            self.seed,
            self.nemesis.kinds,
            digest,
            steps,
            virtual_s,
            self.recorder.history,
            anomalies,
            complaints,
            list(self.trace.lines),
        )

    def _look(self, process: Process | None) -> None:
        for invariant in self.invariants:
            invariant(self, process)

    async def _scenario(self) -> None:
        plan = self.plan
        for broker in self.brokers:
            self.start_broker(broker)
        await self._in_time(
            "creating the topic",
            self.side("admin").create_topic(
                TOPIC, plan.partitions, plan.replication_factor, dict(plan.configs)
            ),
        )
        clients = self._start_clients()
        await asyncio.sleep(plan.calm_s)
        await self.nemesis.rage()
        self.nemesis.heal()
        self.trace.note("healed")
        for producer in self._producers:
            producer.stopping = True
        for transactional in self._transactional:
            transactional.stopping = True
        for member in self._members:
            member.stopping = True
        await self._in_time("acknowledging everything", self._all_acknowledged())
        for producer in self._producers:
            producer.abandon()
        await self._in_time("the last transactions and looks", self._all_settled())
        final = SimConsumer(self.side("final"), TOPIC, plan.partitions, final=True)
        await self._in_time("the final read", final.run())
        if plan.transactional:
            committed = self._committed_consumer("final-committed", final=True)
            await self._in_time("the final read of what is committed", committed.run())
        for client in clients:
            client.cancel()

    def _start_clients(self) -> list[asyncio.Task[None]]:
        plan = self.plan
        self._producers = [
            SimProducer(self.side(f"p{n}"), TOPIC, plan.partitions, plan.pause_s)
            for n in range(plan.producers)
        ]
        self._producers += [
            LeaderAcksProducer(
                self.side(f"l{n}"),
                TOPIC,
                plan.partitions,
                plan.pause_s,
                replicas=plan.replication_factor,
            )
            for n in range(plan.leader_acks)
        ]
        consumers: list[SimConsumer] = [
            SimConsumer(self.side(f"c{n}"), TOPIC, plan.partitions, final=False)
            for n in range(plan.consumers)
        ]
        self._transactional = [
            SimTransactions(self.side(f"t{n}"), self.transactions, TOPIC, plan.partitions, n)
            for n in range(plan.transactional)
        ]
        if plan.transactional:
            consumers.append(self._committed_consumer("committed", final=False))
        running = [producer.run() for producer in self._producers]
        running += [transactional.run() for transactional in self._transactional]
        kinds: list[type[SimMember]] = [SimMember] * plan.members + [
            SimGroupConsumer
        ] * plan.group_consumers
        self._members = [
            kind(self.side(f"m{n}"), self.groups[kind.group], TOPIC, plan.partitions)
            for n, kind in enumerate(kinds)
        ]
        running += [member.run() for member in self._members]
        running += [consumer.run() for consumer in consumers]
        if plan.guarded:
            reader = GuardedReader(self.side(GUARDED_HOST), TOPIC, plan.partitions, final=False)
            changes = AccessChanges(self.side("access"), self.access, TOPIC)
            running += [reader.run(), changes.run()]
        return [asyncio.ensure_future(self._watched(client)) for client in running]

    def _committed_consumer(self, name: str, *, final: bool) -> CommittedConsumer:
        log, partitions = self.transactions, self.plan.partitions
        return CommittedConsumer(self.side(name), log, TOPIC, partitions, final=final)

    async def _all_settled(self) -> None:
        while not (  # noqa: ASYNC110
            all(one.settled for one in self._transactional)
            and all(one.settled for one in self._members)
        ):
            await asyncio.sleep(0.1)

    async def _watched(self, client: Awaitable[None]) -> None:
        try:
            await client
        except Exception as error:
            self.complaints.append(f"a client ended: {error!r} {error.__cause__!r}")

    async def _all_acknowledged(self) -> None:
        while not all(producer.settled for producer in self._producers):  # noqa: ASYNC110
            await asyncio.sleep(0.1)

    async def _in_time(self, what: str, work: Any) -> None:
        try:
            async with asyncio.timeout(self.plan.heal_s):
                await work
        except TimeoutError:
            self.complaints.append(f"stuck: {what} did not end in {self.plan.heal_s} s")


__all__ = ["FAULTS", "BrokerSide", "SimCluster", "SimNode", "SimPlan", "SimReport"]
