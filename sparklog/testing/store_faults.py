"""ClusterStoreFaults: faults of a test cluster's store, which all of its brokers share.

Operations are `get`, `put`, `list`, `delete` and `head`. Prefixes are those of FORMAT.md: `wal/` is
the write-ahead logs, `topics/orders~` the topic `orders`. Each method returns a fault that ends
with `end`, with its `with` block, or with `heal`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType

from sparklog.core.clock import SYSTEM_CLOCK
from sparklog.core.entropy import SYSTEM_ENTROPY
from sparklog.testing.faulty_store import OPERATIONS, FaultPlan, Injected, InjectedFault, Rule


class StoreFault:
    """A fault in force. A context manager: leaving it ends the fault."""

    def __init__(self, end: Callable[[], None]) -> None:
        """Begin; `end` removes it."""
        self.end = end

    def __enter__(self) -> StoreFault:
        """Return itself; the fault is in force already."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the fault."""
        self.end()


class ClusterStoreFaults:
    """The faults of one store. Thread-safe."""

    def __init__(self) -> None:
        """Begin without a fault."""
        self.plan = FaultPlan(clock=SYSTEM_CLOCK, entropy=SYSTEM_ENTROPY)

    @property
    def injected(self) -> Sequence[Injected]:
        """Return each operation that had a fault so far, the oldest first."""
        return tuple(self.plan.injected)

    def fail(
        self, operation: str | None = None, *, prefix: str = "", times: int | None = None
    ) -> StoreFault:
        """Refuse operations: they do nothing. Brokers retry, as they do after a 503.

        Args:
            operation: see the module; None: all.
            prefix: of the keys.
            times: limit for refusals, retries included; None: no limit.

        Raises:
            ValueError: no such operation.
        """
        return self._add(InjectedFault.REFUSED, operation, prefix, times)

    def lose_replies(
        self, operation: str | None = None, *, prefix: str = "", times: int | None = None
    ) -> StoreFault:
        """Perform operations, and answer nothing. Arguments and errors are those of `fail`."""
        return self._add(InjectedFault.LOST_REPLY, operation, prefix, times)

    def delay(
        self,
        seconds: float,
        operation: str | None = None,
        *,
        prefix: str = "",
        times: int | None = None,
    ) -> StoreFault:
        """Perform operations `seconds` late. The rest is as with `fail`.

        The end of the fault does not shorten the delay of operations that wait already.
        """
        return self._add(InjectedFault.SLOW, operation, prefix, times, seconds)

    def heal(self) -> None:
        """End all faults."""
        self.plan.clear()

    def _add(
        self,
        fault: InjectedFault,
        operation: str | None,
        prefix: str,
        times: int | None,
        delay_s: float = 0.0,
    ) -> StoreFault:
        if operation is not None and operation not in OPERATIONS:
            known = ", ".join(sorted(OPERATIONS))
            raise ValueError(f"operations are {known}. operation={operation!r}")
        operations = OPERATIONS if operation is None else frozenset({operation})
        rule = Rule(fault, operations, prefix, times_max=times, delay_s=delay_s)
        return StoreFault(self.plan.add(rule))
