"""Slots: where brokers run among an application's executors, and what is left for its queries.

A slot is Spark's bookkeeping of a core; a broker occupies its task's slots for ever. The aim is
one broker per executor, so that a lost executor costs one broker. Each executor keeps a free slot,
so that queries run beside the brokers. Pure: what Spark has is an argument, what follows is the
answer.

If there are more executors than brokers, a broker claims all slots of its own. Jobs and queries
then run where no broker does: a task that ends its executor ends no broker. While executors are
fewer, one broker leaves slots to queries (`shared_slots`).

Ways in which a broker claims an executor, in order of preference:
- `resource`: the executors have one `broker` each (standalone, local-cluster)
- `cores`: its task takes more than half of the executor's slots, so no second one fits
- `none`: brokers share executors as it comes
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

RESOURCE = "broker"
RESOURCE_AMOUNT = f"spark.executor.resource.{RESOURCE}.amount"
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*(\d+)\s*\]")


@dataclass(frozen=True, slots=True)
class SlotClaim:
    """Resources that a broker's task asks for.

    None of both: the default profile, one slot anywhere.
    """

    resource: bool = False
    cores: int | None = None

    @property
    def exclusive(self) -> bool:
        """Return whether no two brokers share an executor."""
        return self.resource or self.cores is not None


class StartPatience:
    """Says when a start has stopped to advance: nothing new has come for some seconds.

    A slow machine starts executors one by one. While they come, there is nothing to advise.
    """

    def __init__(self, patience_s: float) -> None:
        """Allow `patience_s` between two advances."""
        self._patience_s = patience_s
        self._seen: tuple[int, ...] | None = None
        self._since_s = 0.0

    def is_over(self, now_s: float, *seen: int) -> bool:
        """Return whether the numbers in `seen` have been the same for longer than allowed."""
        if seen != self._seen:
            self._seen, self._since_s = seen, now_s
        return now_s - self._since_s > self._patience_s


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots that Spark has."""

    executors: int
    per_executor: int


def cluster_in_one_machine(master: str) -> tuple[int, int, int] | None:
    """Return executors, cores and MiB of `local-cluster[n,c,m]`; None for another master."""
    found = _LOCAL_CLUSTER.fullmatch(master.strip())
    if found is None:
        return None
    executors, cores, memory = (int(word) for word in found.groups())
    return executors, cores, memory


def slots_each(master: str, conf: Mapping[str, str]) -> int | None:
    """Return the slots of each executor; None where the configuration does not say."""
    machine = cluster_in_one_machine(master)
    if machine is not None:
        return machine[1]
    return int(conf.get("spark.executor.cores", "0")) or None


def executors_of(master: str, conf: Mapping[str, str]) -> int | None:
    """Return how many executors there will be; None where the configuration does not say."""
    machine = cluster_in_one_machine(master)
    if machine is not None:
        return machine[0]
    if master.startswith("spark://"):
        each = int(conf.get("spark.executor.cores", "0"))
        return int(conf.get("spark.cores.max", "0")) // each or None if each else None
    return int(conf.get("spark.executor.instances", "0")) or None


def claim_of(master: str, conf: Mapping[str, str], brokers: int) -> SlotClaim:
    """Return how that number of brokers claims executors; `conf` is the session's, as it is."""
    if master.startswith("local") and cluster_in_one_machine(master) is None:
        return SlotClaim()  # Spark refuses resource profiles in its one-process mode
    if conf.get("spark.dynamicAllocation.enabled", "false").lower() == "true":
        return SlotClaim()  # a profile would need executors of its own kind
    whole = slots_each(master, conf) if (executors_of(master, conf) or 0) > brokers else None
    if conf.get(RESOURCE_AMOUNT, "0") not in ("", "0"):
        return SlotClaim(resource=True, cores=whole)
    if whole is not None:
        return SlotClaim(cores=whole)
    cores = int(conf.get("spark.executor.cores", "0"))
    return SlotClaim(cores=cores // 2 + 1) if cores > 2 else SlotClaim()


def sharing_claim(claim: SlotClaim, each: int | None) -> SlotClaim | None:
    """Return the claim with which one broker leaves slots to queries (`shared_slots`).

    None if all brokers leave slots anyway, or an executor has no slot to leave.

    Args:
        `claim`: of each broker.
        `each`: slots of each executor; None: unknown.
    """
    if each is None or each < 2 or claim.cores != each:
        return None
    return SlotClaim(resource=claim.resource, cores=1)


def advice(
    brokers: int, slots: Slots, claim: SlotClaim, conf: Mapping[str, str], expected: int = 0
) -> list[str]:
    """Return advice for an operator about the slots for brokers and for queries.

    Args:
        `brokers`: the number of brokers of the application.
        `slots`: the executors that Spark has now.
        `claim`: of each broker.
        `conf`: the session's configuration.
        `expected`: the number of executors that the configuration asks for; 0 if it does not say.
    """
    taken = claim.cores or 1
    found = []
    capacity = (
        slots.executors if claim.exclusive else slots.executors * (slots.per_executor // taken)
    )
    if capacity < brokers:
        found.append(
            f"Spark has room for {capacity} of {brokers} brokers now; the others wait for "
            f"executors. executors={slots.executors} slots_each={slots.per_executor}"
        )
    free = slots.executors * slots.per_executor - min(capacity, brokers) * taken
    if capacity >= brokers and free < 1 and slots.executors < expected:
        found.append(
            f"Spark has {slots.executors} of {expected} executors now, and brokers take them all: "
            "a query waits until a broker leaves slots to it"
        )
    elif capacity >= brokers and free < 1:
        found.append(
            "brokers take every slot: a query in this application would wait for ever, without an "
            "error. Give executors one core more (spark.executor.cores; slots need no processors)"
        )
    if not claim.exclusive and slots.executors > 1:
        found.append(
            "two brokers may come to share an executor, and would be lost together. Set "
            f"spark.executor.cores to 3 or more, or {RESOURCE_AMOUNT}=1 with a discovery script"
        )
    if conf.get("spark.speculation", "false").lower() == "true":
        found.append("spark.speculation starts second copies of brokers: set it to false")
    if conf.get("spark.dynamicAllocation.enabled", "false").lower() == "true":
        found.append(
            "spark.dynamicAllocation.enabled takes executors away and gives no broker one of its "
            "own: set it to false, or spark.dynamicAllocation.minExecutors to the number of brokers"
        )
    return found
