"""Counts requests to a store, and the steps in which they go: those of one moment are one step.

Tasks of a `SteppedPool` run one after the other, as if all had begun when they were submitted. So
the steps do not depend on the machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any

from sparklog.store.base import ObjectInfo, ObjectStore
from sparklog.store.delegating_store import DelegatingStore


class RequestSteps:
    """The requests so far, and how many of them waited for one before."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.now = 0

    def note(self, request: str) -> None:
        self.requests.append(request)
        self.now += 1

    def clear(self) -> None:
        self.requests.clear()
        self.now = 0


class SteppedStore(DelegatingStore):
    """Notes each read."""

    def __init__(self, store: ObjectStore, steps: RequestSteps) -> None:
        super().__init__(store)
        self._steps = steps

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        self._steps.note(f"get {key}")
        return super().get(key, start, end)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        self._steps.note(f"list {prefix}")
        return super().list(prefix, start_after)


class SteppedPool(Executor):
    """Runs tasks in the caller's thread; their time begins together."""

    def __init__(self, steps: RequestSteps) -> None:
        self._steps = steps

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        began, done = self._steps.now, _Done(self._steps)
        try:
            done.set_result(function(*arguments, **named))
        except Exception as error:
            done.set_exception(error)
        done.ended, self._steps.now = self._steps.now, began
        return done


class _Done(Future[Any]):
    """A task that has run; who takes its result has waited for it."""

    def __init__(self, steps: RequestSteps) -> None:
        super().__init__()
        self._steps = steps
        self.ended = 0

    def result(self, timeout: float | None = None) -> Any:
        self._steps.now = max(self._steps.now, self.ended)
        return super().result(timeout)
