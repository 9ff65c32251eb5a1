"""AsyncSparklogCluster: `SparklogCluster` for tests that are coroutines.

    async with AsyncSparklogCluster(brokers=3) as cluster:
        await cluster.topic("orders")

Each method is that of `SparklogCluster`, awaited: it runs on another thread, so the event loop of
the test goes on. Works with any plugin for asyncio, and with `asyncio.run`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from sparklog.client.consumer import Record
from sparklog.client.producer import Delivered
from sparklog.testing.cluster import WITHIN_S, SparklogCluster
from sparklog.testing.store_faults import ClusterStoreFaults


class AsyncSparklogCluster:
    """A cluster of brokers in this process. An asynchronous context manager."""

    def __init__(
        self,
        brokers: int = 1,
        *,
        config: Mapping[str, str] | None = None,
        root: str | None = None,
    ) -> None:
        """Prepare a cluster as `SparklogCluster` does; `async with` starts it."""
        self.blocking = SparklogCluster(brokers, config=config, root=root)
        """The same cluster without `await`."""

    @classmethod
    def around(cls, cluster: SparklogCluster) -> Self:
        """Return the asynchronous form of a cluster that runs."""
        made = cls.__new__(cls)
        made.blocking = cluster
        return made

    async def __aenter__(self) -> Self:
        """See `SparklogCluster.__enter__`."""
        await asyncio.to_thread(self.blocking.__enter__)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """See `SparklogCluster.__exit__`."""
        await asyncio.to_thread(self.blocking.__exit__, kind, error, trace)

    @property
    def bootstrap_servers(self) -> str:
        """See `SparklogCluster.bootstrap_servers`."""
        return self.blocking.bootstrap_servers

    @property
    def store(self) -> ClusterStoreFaults:
        """See `SparklogCluster.store`."""
        return self.blocking.store

    async def topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> str:
        """See `SparklogCluster.topic`."""
        create = partial(self.blocking.topic, replication_factor=replication_factor, config=config)
        return await asyncio.to_thread(create, name, partitions)

    async def leader(self, topic: str, partition: int = 0, *, timeout_s: float = WITHIN_S) -> int:
        """See `SparklogCluster.leader`."""
        find = partial(self.blocking.leader, timeout_s=timeout_s)
        return await asyncio.to_thread(find, topic, partition)

    async def produce(
        self, topic: str, values: Sequence[bytes], *, key: bytes | None = None
    ) -> list[Delivered]:
        """See `SparklogCluster.produce`."""
        return await asyncio.to_thread(partial(self.blocking.produce, key=key), topic, values)

    async def consume(
        self, topic: str, count: int = 0, *, timeout_s: float = WITHIN_S
    ) -> list[Record]:
        """See `SparklogCluster.consume`."""
        read = partial(self.blocking.consume, timeout_s=timeout_s)
        return await asyncio.to_thread(read, topic, count)

    async def kill(self, broker_id: int) -> None:
        """See `SparklogCluster.kill`."""
        await asyncio.to_thread(self.blocking.kill, broker_id)

    async def stop(self, broker_id: int) -> None:
        """See `SparklogCluster.stop`."""
        await asyncio.to_thread(self.blocking.stop, broker_id)

    async def start(self, broker_id: int) -> None:
        """See `SparklogCluster.start`."""
        await asyncio.to_thread(self.blocking.start, broker_id)

    async def restart(self, broker_id: int) -> None:
        """See `SparklogCluster.restart`."""
        await asyncio.to_thread(self.blocking.restart, broker_id)

    async def pause(self, broker_id: int) -> None:
        """See `SparklogCluster.pause`."""
        await asyncio.to_thread(self.blocking.pause, broker_id)

    async def resume(self, broker_id: int) -> None:
        """See `SparklogCluster.resume`."""
        await asyncio.to_thread(self.blocking.resume, broker_id)

    async def cut(self, broker_id: int, other_id: int) -> None:
        """See `SparklogCluster.cut`."""
        await asyncio.to_thread(self.blocking.cut, broker_id, other_id)

    async def cut_clients(self, broker_id: int) -> None:
        """See `SparklogCluster.cut_clients`."""
        await asyncio.to_thread(self.blocking.cut_clients, broker_id)

    async def heal(self) -> None:
        """See `SparklogCluster.heal`."""
        await asyncio.to_thread(self.blocking.heal)

    async def wait_until_stable(self, timeout_s: float = WITHIN_S) -> None:
        """See `SparklogCluster.wait_until_stable`."""
        await asyncio.to_thread(self.blocking.wait_until_stable, timeout_s)
