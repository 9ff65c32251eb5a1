"""The bytes of requests that a broker works on at once, over all its connections.

A large request takes its bytes when its size is known, before they arrive. Requests that arrive
have half of the budget at most, so that clients which never finish theirs leave the other half. A
request larger than that half counts as the half until it is whole.

This is no `MemoryBudget`. There a task waits for memory, gets it in its turn, and gives up after a
timeout. A connection has no task and no timeout: it stops reading, so the client's socket fills. A
call resumes it when memory is free, and it tries again for the request that it has then.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class RequestMemoryPool:
    """A budget of bytes. A connection that finds it used up waits its turn and stops reading.

    A request larger than the whole budget is let in when it is alone, so that none waits for ever.
    """

    def __init__(self, limit_bytes: int) -> None:
        """Hand out `limit_bytes`."""
        self._limit = limit_bytes
        self._used = 0
        self._arriving = 0
        self._waiting: deque[Callable[[], None]] = deque()

    @property
    def used_bytes(self) -> int:
        """Return the bytes handed out."""
        return self._used

    def take(self, size: int) -> bool:
        """Take bytes and return True, or take none and return False."""
        if self._used and self._held() + size > self._limit:
            return False
        self._used += size
        return True

    def reserve(self, size: int) -> bool:
        """Take bytes for a request that arrives and return True, or take none and return False."""
        half = self._limit // 2
        if self._arriving and self._arriving + size > half:
            return False
        if self._used and self._held() + min(size, half) > self._limit:
            return False
        self._used += size
        self._arriving += size
        return True

    def arrived(self, size: int) -> None:
        """Record that a request is here that bytes were reserved for: it keeps them."""
        self._arriving -= size

    def wait(self, resume: Callable[[], None]) -> None:
        """Call `resume` once when bytes have been given back; it tries again."""
        self._waiting.append(resume)

    def give_back(self, size: int) -> None:
        """Return bytes, and let those who wait try: each of them once, the first come first."""
        self._used -= size
        for _ in range(len(self._waiting)):
            if self._held() >= self._limit:
                return
            self._waiting.popleft()()

    def _held(self) -> int:
        """Return the bytes that others cannot take; requests that arrive hold half at most."""
        return self._used - max(0, self._arriving - self._limit // 2)
