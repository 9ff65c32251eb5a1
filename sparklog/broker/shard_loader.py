"""Makes the shards of one internal topic from their logs, again and again until it works.

A shard is made of all of its log or not at all. What hinders it may pass: the store is away, or too
few brokers are in sync. A damaged log is tried again too, rarely: somebody may repair it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final, Generic

from sparklog.broker.coordinator_load import load
from sparklog.broker.environment import Environment
from sparklog.broker.gathered_notes import GatheredNotes
from sparklog.broker.led_shard import RELOAD_FIRST_S, RELOAD_LONGEST_S, LedShard, S
from sparklog.core.errors import DataCorrupt, NotEnoughReplicas, NotServing, SparklogError

logger = logging.getLogger(__name__)

LOADS_AT_ONCE: Final = 8


class ShardLoader(Generic[S]):
    """See the module."""

    def __init__(
        self, environment: Environment, topic: str, make_shard: Callable[[int, int], S]
    ) -> None:
        """Load partitions of `topic`; `make_shard` gets partition and leader epoch."""
        self._environment = environment
        self._topic = topic
        self._make_shard = make_shard
        self._notes = GatheredNotes(logger)
        self._lanes = asyncio.Semaphore(LOADS_AT_ONCE)

    async def load(self, led: LedShard[S]) -> S | None:
        """Return the shard that a partition's log makes; None once it is led here no more."""
        wait_s = RELOAD_FIRST_S
        while not led.retired and led.log.live:
            try:
                async with self._lanes:
                    return await self._load_once(led)
            except (NotServing, NotEnoughReplicas):
                pass  # the epoch is over, or writes may be taken again later
            except DataCorrupt:
                logger.exception(
                    "a coordinator's log is damaged topic=%s-%d; run verify",
                    self._topic,
                    led.partition,
                )
                wait_s = RELOAD_LONGEST_S
            except SparklogError as error:
                logger.warning(
                    "a coordinator's log cannot be read topic=%s-%d %s",
                    self._topic,
                    led.partition,
                    error,
                )
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, RELOAD_LONGEST_S)
        return None

    async def _load_once(self, led: LedShard[S]) -> S | None:
        led.log.check_ready()
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        shard = self._make_shard(led.partition, led.log.leader_epoch)
        replayed = await load(led.log, shard, self._environment)
        details = f" records={replayed} seconds={loop.time() - began_s:.3f}"
        self._notes.add("coordinating", self._topic, led.partition, led.log.leader_epoch, details)
        return shard if led.log.live else None
