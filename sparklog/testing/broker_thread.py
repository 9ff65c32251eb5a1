"""BrokerThread: a whole broker in a thread of this process, with faults as a process has them.

The broker is that of `sparklog.broker.main.run`, with an event loop and sockets of its own. A kill
hands nothing over. A pause blocks the event loop, so the kernel accepts connections and nothing
answers, as with SIGSTOP. In both cases requests that are at the store already may still act.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Final

from sparklog.broker.main import run
from sparklog.broker.runtime.environment import Address
from sparklog.broker.runtime.identity import Ready
from sparklog.store.base import ObjectStore

ENDS_WITHIN_S: Final = 200.0
"""A broker that leaves may flush for a minute."""
PAUSED_WITHIN_S: Final = 30.0


class BrokerThread:
    """One run of a broker."""

    def __init__(
        self,
        root: str,
        configs: Mapping[str, str],
        *,
        open_store: Callable[[str], ObjectStore],
        listening: Callable[[Address], None],
    ) -> None:
        """Prepare the broker `node.id` of `configs`; `start` starts it.

        `open_store` opens its store. `listening` gets the bound address, before other brokers can
        learn of this one.
        """
        self.ready: Ready | None = None
        self.failed: BaseException | None = None
        """The error that ended the broker, if one did."""
        self._settled = threading.Event()
        self._leaves = threading.Event()
        self._resumed = threading.Event()
        self._resumed.set()
        self._killed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._main: asyncio.Task[object] | None = None
        self._root, self._configs = root, dict(configs)
        self._open_store, self._listening = open_store, listening
        name = f"broker {configs['node.id']}"
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)

    @property
    def is_alive(self) -> bool:
        """Return True from `start` until the broker has ended."""
        return self._thread.is_alive()

    @property
    def is_paused(self) -> bool:
        """Return True while it is paused."""
        return not self._resumed.is_set()

    def start(self) -> None:
        """Start the broker; return at once."""
        self._thread.start()

    def wait_until_ready(self, timeout_s: float) -> Ready:
        """Return the addresses once the broker serves.

        Raises:
            TimeoutError: it does not serve in time. Otherwise the error that ended it.
        """
        if not self._settled.wait(timeout_s):
            raise TimeoutError(f"{self._thread.name} does not serve. within_s={timeout_s:g}")
        if self.failed is not None:
            raise self.failed
        assert self.ready is not None, "it is settled by readiness or failure"
        return self.ready

    def begin_to_leave(self) -> None:
        """Have the broker hand over and end; return at once."""
        self._leaves.set()
        self.resume()

    def begin_to_die(self) -> None:
        """Have the broker end without handing over; return at once."""
        self._killed = True
        if self._loop is not None:
            try:
                self._loop.call_soon_threadsafe(self._interrupt)
            except RuntimeError:
                pass  # its loop has ended
        self.resume()

    def wait_until_ended(self) -> None:
        """Wait for its end.

        Raises:
            TimeoutError: it goes on. Otherwise the error that ended it.
        """
        self._thread.join(ENDS_WITHIN_S)
        if self._thread.is_alive():
            raise TimeoutError(f"{self._thread.name} does not end. within_s={ENDS_WITHIN_S:g}")
        if self.failed is not None:
            raise self.failed

    def pause(self) -> None:
        """Block the broker's event loop until `resume`; return once it is blocked.

        Raises:
            TimeoutError: the event loop does not respond.
        """
        assert self._loop is not None, "a broker that serves has a loop"
        self._resumed.clear()
        blocked = threading.Event()

        def block() -> None:
            blocked.set()
            self._resumed.wait()

        self._loop.call_soon_threadsafe(block)
        if not blocked.wait(PAUSED_WITHIN_S):
            self.resume()
            raise TimeoutError(f"{self._thread.name} is too busy to be paused")

    def resume(self) -> None:
        """End a pause."""
        self._resumed.set()

    def _serve(self) -> None:
        try:
            run(
                self._root,
                self._configs,
                stop=self._asked_to_leave,
                ready=self._serves,
                open_store=self._open_store,
                listening=self._listening,
                shares_process=True,
            )
        except BaseException as error:
            if not self._killed:
                self.failed = error
        finally:
            self._settled.set()

    def _asked_to_leave(self) -> bool:
        if self._killed:
            raise _Killed
        return self._leaves.is_set()

    def _interrupt(self) -> None:
        """End the broker's wait at once, else `_asked_to_leave` ends it a little later.

        A task that counts as cancelled could not use `asyncio.timeout` as it ends.
        """
        assert self._main is not None, "set together with the loop"
        self._main.cancel()
        self._main.uncancel()

    def _serves(self, ready: Ready) -> None:
        self._loop, self._main = asyncio.get_running_loop(), asyncio.current_task()
        self.ready = ready
        self._settled.set()


class _Killed(Exception):
    """The broker ends without handing over."""
