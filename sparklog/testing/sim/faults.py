"""Faults of a simulated cluster, and a nemesis that draws them from a seed.

Each fault begins, lasts for a while and ends; several may overlap. `heal` ends all of them at once
and for good.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace
from itertools import permutations
from typing import TYPE_CHECKING, Final

from sparklog.core.entropy import Entropy
from sparklog.testing.sim.network import NetworkFaults

if TYPE_CHECKING:
    from sparklog.testing.sim.cluster import SimBroker, SimCluster


KINDS_MIN: Final = 2
LOOK_EVERY_S: Final = 0.1
SHARES_OF_LINKS: Final = (0.3, 0.6, 1.0)

Undo = Callable[[], None]
Fault = Callable[["SimCluster", Entropy], Undo]
"""Begins the fault and returns a function that ends it; repeated calls of that are harmless."""


class Nemesis:
    """Draws faults, and ends them."""

    def __init__(self, cluster: SimCluster, entropy: Entropy) -> None:
        """Inject the faults of the plan of `cluster`."""
        self._cluster = cluster
        self._entropy = entropy
        plan = cluster.plan
        self.kinds = self._some_kinds(plan.spare) if plan.faults is None else plan.faults
        self._undo: list[Undo] = []
        self._healed = False
        self.begun = 0
        """Number of faults that have begun."""

    def _some_kinds(self, spare: Collection[str]) -> tuple[str, ...]:
        names = [name for name in FAULTS if name not in spare and name not in LINK_FAULTS]
        count = KINDS_MIN + int(self._entropy.random() * (len(names) - KINDS_MIN + 1))
        return tuple(names.pop(int(self._entropy.random() * len(names))) for _ in range(count))

    async def rage(self) -> None:
        """Inject faults for the duration in the plan."""
        loop, plan = self._cluster.loop, self._cluster.plan
        end_s = loop.time() + plan.storm_s
        while self.kinds:
            wait_s = 2 * plan.fault_every_s * self._entropy.random()
            lasts_s = 2 * plan.fault_lasts_s * self._entropy.random()
            if loop.time() + wait_s >= end_s:
                break
            await asyncio.sleep(wait_s)
            kind = self.kinds[int(self._entropy.random() * len(self.kinds))]
            self._cluster.trace.note("fault", kind)
            self.begun += 1
            undo = FAULTS[kind](self._cluster, self._entropy)
            self._undo.append(undo)
            loop.call_later(lasts_s, self._end, kind, undo)
            if plan.rest_s is not None:
                await asyncio.sleep(lasts_s)
                while self._cluster.has_twins and loop.time() < end_s:  # noqa: ASYNC110
                    await asyncio.sleep(LOOK_EVERY_S)
                await asyncio.sleep(plan.rest_s)
        await asyncio.sleep(max(0.0, end_s - loop.time()))

    def _end(self, kind: str, undo: Undo) -> None:
        if not self._healed:
            self._cluster.trace.note("end of", kind)
            undo()

    def heal(self) -> None:
        """End all faults."""
        self._healed = True
        for undo in self._undo:
            undo()
        cluster = self._cluster
        cluster.net.heal()
        cluster.net.faults = NetworkFaults()
        cluster.store.faults = cluster.store.calm
        cluster.store.cut_off.clear()
        for process in cluster.loop.processes:
            process.resume()
        for broker in cluster.brokers:
            cluster.start_broker(broker)


def _one(cluster: SimCluster, entropy: Entropy) -> SimBroker:
    return cluster.brokers[int(entropy.random() * len(cluster.brokers))]


def _kill(cluster: SimCluster, entropy: Entropy) -> Undo:
    """Kill one broker; it restarts."""
    broker = _one(cluster, entropy)
    cluster.kill_broker(broker)
    return lambda: cluster.start_broker(broker)


def _kill_all(cluster: SimCluster, entropy: Entropy) -> Undo:
    """Kill all brokers at one moment, as when their Spark driver dies."""
    for broker in cluster.brokers:
        cluster.kill_broker(broker)

    def undo() -> None:
        for broker in cluster.brokers:
            cluster.start_broker(broker)

    return undo


def _pause(cluster: SimCluster, entropy: Entropy) -> Undo:
    """Pause one broker; afterwards it continues as if no time had passed."""
    process = _one(cluster, entropy).process
    if process is None:
        return _nothing
    cluster.trace.note("pause", process.name)
    process.pause()
    return process.resume


def _twin(cluster: SimCluster, entropy: Entropy) -> Undo:
    """Start a second process for a broker that is paused, or only seemed dead."""
    broker = _one(cluster, entropy)
    process = broker.process
    if process is None:
        return _nothing
    if entropy.random() < 0.7:
        process.pause()
    cluster.trace.note("twin of", process.name)
    cluster.start_twin(broker)
    return process.resume


def _stop(cluster: SimCluster, entropy: Entropy) -> Undo:
    """Shut one broker down in a controlled way; it restarts."""
    cluster.stop_broker(_one(cluster, entropy))
    return _nothing


def _stop_all(cluster: SimCluster, entropy: Entropy) -> Undo:
    """Shut all brokers down in a controlled way; they restart."""
    for broker in cluster.brokers:
        cluster.stop_broker(broker)
    return _nothing


def _nothing() -> None:
    """Do nothing: the fault ends by itself."""


def _isolate(cluster: SimCluster, entropy: Entropy) -> Undo:
    """Cut the connections between one broker and its peers; clients and store still reach it."""
    broker = _one(cluster, entropy)
    for other in cluster.brokers:
        if other is not broker:
            cluster.net.cut(broker.address.host, other.address.host)
            cluster.net.cut(other.address.host, broker.address.host)
    cluster.trace.note("isolated", broker.address.host)
    return cluster.net.heal


def _deafen(cluster: SimCluster, entropy: Entropy) -> Undo:
    """Cut one direction: a broker sends to another but receives nothing from it."""
    one, other = _one(cluster, entropy), _one(cluster, entropy)
    cluster.net.cut(other.address.host, one.address.host)
    cluster.trace.note("deafened", one.address.host, "to", other.address.host)
    return cluster.net.heal


def _refuse_links(cluster: SimCluster, entropy: Entropy) -> Undo:
    """Refuse connections between brokers, in some directions or in all of them."""
    for one, other in _some_links(cluster, entropy):
        cluster.net.refuse(one, other)
        cluster.trace.note("refused", one, other)
    return cluster.net.heal


def _cut_links(cluster: SimCluster, entropy: Entropy) -> Undo:
    """Hold messages between brokers back, in some directions or in all of them."""
    for one, other in _some_links(cluster, entropy):
        cluster.net.cut(one, other)
        cluster.trace.note("cut", one, other)
    return cluster.net.heal


def _some_links(cluster: SimCluster, entropy: Entropy) -> list[tuple[str, str]]:
    share = SHARES_OF_LINKS[int(entropy.random() * len(SHARES_OF_LINKS))]
    hosts = [broker.address.host for broker in cluster.brokers]
    return [pair for pair in permutations(hosts, 2) if entropy.random() < share]


def _cut_store(cluster: SimCluster, entropy: Entropy) -> Undo:
    """Cut one broker off from the store."""
    host = _one(cluster, entropy).address.host
    cluster.store.cut_off.add(host)
    cluster.trace.note("store cut", host)
    return lambda: cluster.store.cut_off.discard(host)


def _moody_store(cluster: SimCluster, entropy: Entropy) -> Undo:
    """Let the store reject requests, lose responses, and write late."""
    cluster.store.faults = replace(
        cluster.store.calm,
        slow=0.1 * entropy.random(),
        refused=0.3 * entropy.random(),
        lost_request=0.1 * entropy.random(),
        lost_reply=0.2 * entropy.random(),
        late=0.2 * entropy.random(),
        own_exists=0.3 * entropy.random(),
    )

    def undo() -> None:
        cluster.store.faults = cluster.store.calm

    return undo


def _bad_network(cluster: SimCluster, entropy: Entropy) -> Undo:
    """Let messages be slow, and connections break."""
    cluster.net.faults = NetworkFaults(slow=0.3 * entropy.random(), reset=0.05 * entropy.random())

    def undo() -> None:
        cluster.net.faults = NetworkFaults()

    return undo


def _break_connections(cluster: SimCluster, entropy: Entropy) -> Undo:
    """Break all connections from and to one broker."""
    cluster.net.break_connections(_one(cluster, entropy).address.host)
    return _nothing


FAULTS: Final[dict[str, Fault]] = {
    "kill": _kill,
    "kill-all": _kill_all,
    "pause": _pause,
    "twin": _twin,
    "stop": _stop,
    "stop-all": _stop_all,
    "isolate": _isolate,
    "deafen": _deafen,
    "cut-store": _cut_store,
    "moody-store": _moody_store,
    "bad-network": _bad_network,
    "break-connections": _break_connections,
    "refuse-links": _refuse_links,
    "cut-links": _cut_links,
}
LINK_FAULTS: Final = ("refuse-links", "cut-links")
"""Only for plans that name them: a separate campaign tests them, with its own invariant."""
