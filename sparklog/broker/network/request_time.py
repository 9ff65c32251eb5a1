"""Request time: how long the event loop works on a client's requests, and the throttle for it.

The quota `request_percentage` is the share of one thread's time: 100 is all of it. A broker has one
such thread. It counts the decoding of a request, the steps of its handler, and the encoding of the
response. It does not count the time for which a handler waits, nor work in other threads. Only
clients with such a quota are timed.

  REQUEST-TIME-1: a throttle time is at most one window, `quota.window.size.seconds`
  REQUEST-TIME-2: the excess that a client pays for later is at most what its quota allows it at
      once

Source: KIP-124.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from dataclasses import replace
from datetime import timedelta
from math import ceil
from types import coroutine
from typing import Any, Final, ParamSpec, TypeVar

from sparklog.broker.runtime.metrics import BrokerMetrics
from sparklog.broker.runtime.request import UNTHROTTLED, NoResponse, RequestContext
from sparklog.core.clock import SYSTEM_CLOCK, Clock
from sparklog.core.quotas import REQUEST_PERCENTAGE, Quotas, TokenBucket

PERCENT: Final = 100.0
MS_PER_S: Final = 1000

Given = ParamSpec("Given")
Result = TypeVar("Result")


class RequestTime:
    """The request time of one client. The event loop's only."""

    __slots__ = ("_bucket", "_clock", "_metrics", "_wait_max_s")

    def __init__(
        self,
        bucket: TokenBucket,
        wait_max_s: float,
        metrics: BrokerMetrics,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        """Charge a bucket of percentages of a second.

        Args:
            bucket: the client's.
            wait_max_s: the longest throttle time.
            metrics: counts a throttled request.
            clock: measures the work.
        """
        self._bucket = bucket
        self._wait_max_s = wait_max_s
        self._metrics = metrics
        self._clock = clock

    def measured(
        self, work: Callable[Given, Result], *args: Given.args, **more: Given.kwargs
    ) -> Result:
        """Return the result of a function, and charge the client for its time."""
        began_s = self._clock.monotonic_s()
        try:
            return work(*args, **more)
        finally:
            self._spend_since(began_s)

    def _spend_since(self, began_s: float) -> None:
        percentage = (self._clock.monotonic_s() - began_s) * PERCENT
        self._bucket.spend(percentage, asyncio.get_running_loop().time())

    @coroutine
    def timed(self, work: Awaitable[Result]) -> Generator[Any, Any, Result]:
        """Return the result of `work`, and charge each of its steps."""
        steps = work.__await__()
        resume: Any = steps.send
        value: Any = None
        while True:
            try:
                awaited = self.measured(resume, value)
            except StopIteration as ended:
                result: Result = ended.value
                return result
            try:
                value = yield awaited
                resume = steps.send
            except BaseException as error:
                # For example a cancellation: it is for the work, which may clean up.
                value, resume = error, steps.throw

    def throttled(self, response: Any) -> tuple[Any, timedelta]:
        """Return a response with the throttle time in it, and that time.

        A longer throttle time that the response has already stays.
        """
        own: timedelta = getattr(response, "throttle_time", UNTHROTTLED)
        wait_s = min(self._bucket.wait_s(asyncio.get_running_loop().time()), self._wait_max_s)
        throttle = timedelta(milliseconds=ceil(wait_s * MS_PER_S))
        if throttle <= own:
            return response, own
        self._metrics.throttled(REQUEST_PERCENTAGE, wait_s)
        if response is None:
            return NoResponse(throttle), throttle
        if hasattr(response, "throttle_time"):
            response = replace(response, throttle_time=throttle)
        return response, throttle


class TimedClients:
    """Finds the clients whose request time has a quota. Without such a quota it asks for none."""

    __slots__ = ("_quotas", "exist", "time_of")

    def __init__(
        self, time_of: Callable[[RequestContext, int], RequestTime | None] | None = None
    ) -> None:
        """Time the clients for which `time_of` returns a request time; without it, none.

        `time_of` takes the client and the API of its request.
        """
        self.exist = time_of is not None
        self.time_of = time_of or _untimed
        self._quotas: Quotas = {}

    def saw(self, quotas: Quotas) -> None:
        """Find out if the quotas of a new metadata image limit anyone's request time."""
        if quotas is not self._quotas:
            self._quotas = quotas
            self.exist = any(REQUEST_PERCENTAGE in rates for rates in quotas.values())


def _untimed(context: RequestContext, api: int) -> None:
    return None
