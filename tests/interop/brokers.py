"""Brokers as `sparklog.broker.main` runs them, in threads of the test's process.

with Brokers("memory://name", count=3) as brokers:
    brokers.bootstrap   # "127.0.0.1:40123,…"
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType

from confluent_kafka.admin import AdminClient

from sparklog.broker.main import run
from sparklog.broker.runtime.identity import Ready
from tests.harness.waiting import eventually

START_S = 150.0
STOP_S = 200.0


class Brokers:
    """Some brokers over one root; a context manager."""

    def __init__(
        self,
        root: str,
        count: int = 1,
        settings: Mapping[str, str] | None = None,
        client: Mapping[str, str] | None = None,
    ) -> None:
        """Prepare brokers 1 to `count` on free ports of this machine.

        `client` has librdkafka's settings for the listener by which brokers reach each other.
        """
        self.root = root
        self._client = dict(client or {})
        self._settings = dict(settings or {})
        self._stop = threading.Event()
        self._ready: dict[int, Ready] = {}
        self._failed: list[BaseException] = []
        self._changed = threading.Condition()
        self._threads = [
            threading.Thread(target=self._serve, args=(n,), name=f"broker {n}", daemon=True)
            for n in range(1, count + 1)
        ]

    @property
    def bootstrap(self) -> str:
        """Return the addresses of all brokers, as clients take them."""
        return ",".join(f"{r.host}:{r.port}" for r in self._ready.values())

    @property
    def ready(self) -> Sequence[Ready]:
        """Return what the brokers said when they served."""
        return list(self._ready.values())

    def __enter__(self) -> Brokers:
        """Start all and wait until they serve."""
        for thread in self._threads:
            thread.start()
        with self._changed:
            self._changed.wait_for(self._settled, START_S)
        if self._failed:
            raise self._failed[0]
        assert len(self._ready) == len(self._threads), "the brokers did not start in time"
        self._wait_until_all_know_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Drain and end all."""
        self._stop.set()
        for thread in self._threads:
            thread.join(STOP_S)
        if error is None:
            assert not any(thread.is_alive() for thread in self._threads), "a broker did not stop"
            if self._failed:
                raise self._failed[0]

    def _wait_until_all_know_all(self) -> None:
        """Wait until each knows the others, which happens a moment after they serve."""
        for address in self.bootstrap.split(","):
            known = partial(self._knows_all, address)
            eventually(known, f"{address} knows all brokers", START_S)

    def _knows_all(self, address: str) -> bool:
        asked = AdminClient({"bootstrap.servers": address, **self._client})
        return len(asked.list_topics(timeout=START_S).brokers) == len(self._threads)

    def _settled(self) -> bool:
        return bool(self._failed) or len(self._ready) == len(self._threads)

    def _serve(self, number: int) -> None:
        settings = {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            **self._settings,
            "node.id": str(number),
        }
        try:
            run(self.root, settings, stop=self._stop.is_set, ready=self._is_ready)
        except BaseException as error:
            with self._changed:
                self._failed.append(error)
                self._changed.notify_all()

    def _is_ready(self, ready: Ready) -> None:
        with self._changed:
            self._ready[ready.broker_id] = ready
            self._changed.notify_all()
