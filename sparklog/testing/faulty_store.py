"""FaultyStore: wraps a store and injects faults by plan.

A plan is a list of rules. The first rule that applies to an operation injects its fault. The given
`Entropy` decides about probabilities, so the same seed and the same operations have the same
faults. Durations are seconds on the given `Clock`. Several stores may share a plan, and a test may
change it at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from threading import Lock
from typing import TypeVar

from sparklog.core.clock import Clock
from sparklog.core.entropy import Entropy
from sparklog.store.base import Data, ObjectInfo, ObjectStore, PutOutcome, TransientStoreError
from sparklog.store.delegating_store import DelegatingStore

T = TypeVar("T")

OPERATIONS = frozenset({"get", "put", "list", "delete", "head"})
WRITES = frozenset({"put", "delete"})


class InjectedFault(Enum):
    """Kinds of faults."""

    REFUSED = "refused"
    """No connection: nothing happens, and the caller knows."""
    BUSY = "busy"
    """503: nothing happens, but the caller cannot be sure."""
    BUSY_AFTER = "busy after"
    """A write happens, but the response is a 503."""
    LOST_REQUEST = "lost request"
    """Nothing happens and there is no response."""
    LOST_REPLY = "lost reply"
    """The operation happens, but there is no response."""
    LATE = "late"
    """There is no response, and a write happens only `delay_s` later."""
    SLOW = "slow"
    """The operation happens after `delay_s`."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A fault, and the operations that have it."""

    fault: InjectedFault
    operations: frozenset[str] = OPERATIONS
    prefix: str = ""
    """Prefix of the key, or of the listed prefix."""
    probability: float = 1.0
    times_max: int | None = None
    """Limit for injections; None means no limit."""
    from_s: float = 0.0
    until_s: float = float("inf")
    """The time window of the rule, on the store's clock."""
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Injected:
    """One injected fault, for the report of a failed test."""

    at_s: float
    fault: InjectedFault
    operation: str
    key: str


class FaultPlan:
    """Rules that may change while stores obey them. Thread-safe."""

    def __init__(self, rules: Sequence[Rule] = (), *, clock: Clock, entropy: Entropy) -> None:
        """Begin with `rules`."""
        self.injected: list[Injected] = []
        """All faults so far, the oldest first."""
        self._rules = [_CountedRule(rule) for rule in rules]
        self._clock = clock
        self._entropy = entropy
        self._lock = Lock()

    def add(self, rule: Rule) -> Callable[[], None]:
        """Add a rule after all others; return a function that removes it."""
        counted = _CountedRule(rule)
        with self._lock:
            self._rules.append(counted)

        def remove() -> None:
            with self._lock:
                self._rules = [one for one in self._rules if one is not counted]

        return remove

    def clear(self) -> None:
        """Remove all rules."""
        with self._lock:
            self._rules = []

    def rule_for(self, operation: str, key: str) -> Rule | None:
        """Return the rule that applies to an operation now, and count it; None: no fault."""
        now_s = self._clock.monotonic_s()
        with self._lock:
            for one in self._rules:
                rule = one.rule
                if (
                    operation in rule.operations
                    and key.startswith(rule.prefix)
                    and rule.from_s <= now_s < rule.until_s
                    and (rule.times_max is None or one.used < rule.times_max)
                    and (rule.probability >= 1 or self._entropy.random() < rule.probability)
                ):
                    one.used += 1
                    self.injected.append(Injected(now_s, rule.fault, operation, key))
                    return rule
        return None


@dataclass(slots=True)
class _CountedRule:
    rule: Rule
    used: int = 0


class FaultyStore(DelegatingStore):
    """Forwards every operation, except where a rule applies. Thread-safe."""

    def __init__(
        self,
        store: ObjectStore,
        rules: Sequence[Rule] | FaultPlan,
        *,
        clock: Clock,
        entropy: Entropy,
    ) -> None:
        """Put `rules` between `store` and its users."""
        super().__init__(store)
        if not isinstance(rules, FaultPlan):
            rules = FaultPlan(rules, clock=clock, entropy=entropy)
        self.plan = rules
        self._late: list[tuple[float, Callable[[], object]]] = []
        self._clock = clock
        self._lock = Lock()

    @property
    def injected(self) -> list[Injected]:
        """Return all faults of the plan so far."""
        return self.plan.injected

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """See `ObjectStore.get`."""
        return self._do("get", key, lambda: self._store.get(key, start, end))

    def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        """See `ObjectStore.put_if_absent`; a put without a response is UNKNOWN."""
        try:
            return self._do("put", key, lambda: self._store.put_if_absent(key, data))
        except _NoAnswer:
            return PutOutcome.UNKNOWN

    def put(self, key: str, data: bytes) -> None:
        """See `ObjectStore.put`."""
        self._do("put", key, lambda: self._store.put(key, data))

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`. A fault affects the whole listing, before its first key."""
        yield from self._do("list", prefix, lambda: tuple(self._store.list(prefix, start_after)))

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        self._do("delete", key, lambda: self._store.delete(key))

    def retire(self, key: str) -> None:
        """See `ObjectStore.retire`; a rule for deletes applies."""
        self._do("delete", key, lambda: self._store.retire(key))

    def head(self, key: str) -> ObjectInfo:
        """See `ObjectStore.head`."""
        return self._do("head", key, lambda: self._store.head(key))

    def deliver_late(self, *, everything: bool = False) -> int:
        """Perform the late writes that are due, or all of them; return their number.

        Every operation does this first.
        """
        now_s = self._clock.monotonic_s()
        with self._lock:
            due = [one for one in self._late if everything or one[0] <= now_s]
            self._late = [one for one in self._late if one not in due]
        for _, write in sorted(due, key=lambda one: one[0]):
            write()
        return len(due)

    def _do(self, operation: str, key: str, request: Callable[[], T]) -> T:
        self.deliver_late()
        rule = self.plan.rule_for(operation, key)
        if rule is None:
            return request()
        facts = f"root={self.url} key={key} operation={operation} fault={rule.fault.value}"
        match rule.fault:
            case InjectedFault.REFUSED:
                raise TransientStoreError(f"injected. {facts}", unsettled=False)
            case InjectedFault.BUSY:
                raise TransientStoreError(f"injected. {facts}", unsettled=True)
            case InjectedFault.BUSY_AFTER:
                request()
                raise TransientStoreError(f"injected. {facts}", unsettled=True)
            case InjectedFault.LOST_REQUEST:
                raise _NoAnswer(f"injected. {facts}", unsettled=True)
            case InjectedFault.LOST_REPLY:
                request()
                raise _NoAnswer(f"injected. {facts}", unsettled=True)
            case InjectedFault.LATE:
                if operation in WRITES:
                    with self._lock:
                        self._late.append((self._clock.monotonic_s() + rule.delay_s, request))
                raise _NoAnswer(f"injected. {facts}", unsettled=True)
            case InjectedFault.SLOW:
                self._clock.sleep_s(rule.delay_s)
                return request()


class _NoAnswer(TransientStoreError):
    """No response: for a put this is UNKNOWN."""
