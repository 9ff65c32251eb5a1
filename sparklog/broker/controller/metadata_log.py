"""The metadata log as a broker sees it: the newest image, and appends decided on it.

  METADATA-LOG-1: the image and the view end at the same offset; both only move forward
  METADATA-LOG-2: a decision is made on the image at offset N and appended at N, or made again on a
      newer one
  METADATA-LOG-3: decisions that come together are made one after the other, each on the image
      after the one before. They are appended as one segment: many changes cost one request
  METADATA-LOG-4: brokers that find the log damaged while they serve wait for it like for a store
      that does not answer. They serve on with what they know until an operator puts it right

Cost: an append is a put and a listing; looking for news is one request when there are none.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from sparklog.broker.runtime.cause import Cause, caused_by, current_cause
from sparklog.broker.runtime.environment import Environment
from sparklog.broker.runtime.log_limiter import RateLimitedLog
from sparklog.broker.runtime.metadata_access import Decision
from sparklog.cluster.metadata import records as codec
from sparklog.cluster.metadata import snapshot
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import Record
from sparklog.core.entropy import new_nonce
from sparklog.core.errors import DataCorrupt, OutcomeUnknown, SparklogError, Unavailable
from sparklog.log.effects import Program
from sparklog.log.layout import METADATA_TOPIC, METADATA_TOPIC_ID, PartitionLayout
from sparklog.log.manifest.change import absorb_tail, change
from sparklog.log.manifest.quick_refresh import probe
from sparklog.log.manifest.refresh import refresh
from sparklog.log.manifest.view import PartitionView
from sparklog.log.partition.append import Candidate, append
from sparklog.log.partition.whole_reader import read_whole
from sparklog.log.schema import normalized
from sparklog.log.segment.builder import SegmentBuilder, build_records
from sparklog.store.base import ObjectNotFound

logger = logging.getLogger(__name__)

LAYOUT = PartitionLayout(METADATA_TOPIC, METADATA_TOPIC_ID, 0)
TAIL_SEGMENTS_MAX = 32
LOST_RACES_MAX = 1000
CAUSES_MAX = 10
"""Of one append, in its log line."""
DAMAGE_PAUSE_S = 2.0
"""The pause after a look at a damaged log: its caller looks again at once."""

Listener = Callable[[MetadataImage], None]
Result = TypeVar("Result")


@dataclass(slots=True, eq=False)
class _PendingChange:
    """A decision that a caller waits for."""

    decision: Decision
    done: asyncio.Future[MetadataImage]
    cause: Cause | None


class MetadataLog:
    """Reads and appends `__cluster_metadata`. One per broker; not thread-safe."""

    def __init__(self, environment: Environment) -> None:
        """Know nothing yet: `open` comes first."""
        self.image = MetadataImage()
        self._environment = environment
        self._view = PartitionView(LAYOUT)
        self._lock = asyncio.Lock()
        self._asked: list[_PendingChange] = []
        self._listeners: list[Listener] = []
        self.appended: Callable[[], None] = lambda: None
        """Called after an append of this broker's own, to have others look."""
        self.answered_s = 0.0
        """When the store last did what it was asked here, on the loop's clock."""
        self.append_s = 0.0
        """Time that the newest append took."""
        self._waiting: dict[asyncio.Future[None], int] = {}
        self._snapshot_end = 0
        self._opened = asyncio.Event()
        self._damaged = RateLimitedLog()

    async def open(self) -> MetadataImage:
        """Read the newest snapshot and what follows it.

        Raises:
            Unavailable: the store does not answer. DataCorrupt: the log is damaged; run verify.
        """
        async with self._lock:
            image = await self._newest_snapshot()
            view = await self._run(refresh(PartitionView(LAYOUT)))
            if image.end_offset > view.end_offset:  # a snapshot of another, deleted log
                image = MetadataImage()
            self.image = image
            await self._read_on(view)
            self._opened.set()
            return self.image

    async def opened(self) -> None:
        """Wait until the log has been read."""
        await self._opened.wait()

    async def catch_up(self) -> MetadataImage:
        """Apply the records that others appended. One request when there are none.

        Raises:
            Unavailable: the store does not answer, or the log is damaged (METADATA-LOG-4).
        """
        try:
            async with self._lock:
                await self._read_on(await self._run(probe(self._view)))
                return self.image
        except DataCorrupt as damage:
            raise await self._waited(damage) from damage

    async def decide(self, decision: Decision) -> MetadataImage:
        """Append what `decision` makes of the newest image; return an image that has it.

        The decision is made again whenever another broker was faster, so it must depend on nothing
        but the image. When it returns no records nothing is appended, and the image may be older
        than what others have appended meanwhile.

        Raises:
            SparklogError: what the decision raised.
            Unavailable: the store does not answer, or lost too many races; decide again. Or the log
                is damaged (METADATA-LOG-4).
            OutcomeUnknown: it may have been appended; decide again, and it is seen if so.
        """
        done = asyncio.get_running_loop().create_future()
        asked = _PendingChange(decision, done, current_cause())
        self._asked.append(asked)
        try:
            async with self._lock:
                if not asked.done.done():
                    await self._settle_asked()
            return await asked.done
        except asyncio.CancelledError:
            asked.done.cancel()
            raise
        except DataCorrupt as damage:
            raise await self._waited(damage) from damage

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` with every new image, at once and in order."""
        self._listeners.append(listener)

    def unsubscribe(self, listener: Listener) -> None:
        """Call `listener` no more."""
        self._listeners.remove(listener)

    async def beyond(self, end_offset: int) -> MetadataImage:
        """Wait until the image ends beyond `end_offset`. Looks for nothing by itself."""
        while self.image.end_offset <= end_offset:
            changed = asyncio.get_running_loop().create_future()
            self._waiting[changed] = end_offset
            try:
                await changed
            finally:
                self._waiting.pop(changed, None)
        return self.image

    async def _settle_asked(self) -> None:
        """Decide and append everything asked for until now. Under the lock."""
        taken, self._asked = self._asked, []
        try:
            await self._append_decided(taken)
        except SparklogError as error:
            for one in taken:
                if not one.done.done():
                    one.done.set_exception(error)
        finally:
            # When this task is cancelled, the next of those who wait goes on.
            self._asked = [one for one in taken if not one.done.done()] + self._asked
        await self._tidy()

    async def _append_decided(self, taken: list[_PendingChange]) -> None:
        for _ in range(LOST_RACES_MAX):
            records, decided = self._decided(taken)
            if not records or await self._append(records):
                for one in decided:
                    if not one.done.done():
                        one.done.set_result(self.image)
                if records:
                    self.appended()
                    self._log_appended(records, decided)
                return
        raise Unavailable(f"lost too many races for the metadata log. races={LOST_RACES_MAX}")

    def _decided(self, taken: list[_PendingChange]) -> tuple[list[Record], list[_PendingChange]]:
        """Return the records of all decisions, and who waits for them."""
        image, records, decided = self.image, list[Record](), list[_PendingChange]()
        for one in taken:
            if one.done.done():
                continue
            try:
                made = one.decision(image)
            except Exception as error:
                one.done.set_exception(error)
                continue
            if made:
                image = image.applied(made, image.end_offset + len(made))
                records += made
            decided.append(one)
        return records, decided

    async def _append(self, records: list[Record]) -> bool:
        """Append at the image's end; if that is taken, read on and return False."""
        at = self.image.end_offset
        protocol = append(self._view, Candidate(self._draft(records), only_at=at))
        began_s = asyncio.get_running_loop().time()
        view, done = await self._run(protocol)
        self.append_s = self.answered_s - began_s
        if done is None:
            await self._read_on(view)
            return False
        if view.end_offset == done.end_offset:
            self._view = view
            self._changed(self.image.applied(records, done.end_offset))
        else:
            await self._read_on(view)
        return True

    def _log_appended(self, records: list[Record], decided: list[_PendingChange]) -> None:
        """Log what was appended and why: other brokers' lines name the offset as their cause."""
        kinds = Counter(type(record).__name__.removesuffix("Record") for record in records)
        causes = dict.fromkeys(str(one.cause) for one in decided if one.cause is not None)
        text = "; ".join(list(causes)[:CAUSES_MAX]) or "the broker itself"
        with caused_by(None):  # the line has all causes, not only that of the task that appends
            logger.info(
                "metadata appended end_offset=%d records=%s causes=[%s]",
                self.image.end_offset,
                dict(kinds),
                text,
            )

    def _draft(self, records: list[Record]) -> SegmentBuilder:
        batch = normalized(codec.encode(records), self._environment.clock.now_ms())
        return build_records(LAYOUT, [batch], new_nonce(self._environment.entropy), codec="lz4")

    async def _read_on(self, view: PartitionView) -> None:
        """Apply what `view` has beyond the image."""
        image = self.image
        if view.end_offset > image.end_offset:
            protocol = read_whole(view, image.end_offset, view.end_offset, ("value",))
            for batch in await self._run(protocol):
                image = image.read_on(batch)
        self._view = view
        if image is not self.image:
            self._changed(image)

    async def _waited(self, damage: DataCorrupt) -> Unavailable:
        """Wait a while, as nothing changes at once, and return the error to raise (METADATA-LOG-4).

        Without the lock: all who ask wait at the same time, and not one after the other.
        """
        self._damaged.error(
            logger, "the metadata log is damaged, serving on with what is known: %s", damage
        )
        await asyncio.sleep(DAMAGE_PAUSE_S)
        return Unavailable(
            "the metadata log is damaged, so nothing can be changed: verify __cluster_metadata and "
            f"bring its object back from a copy; brokers go on by themselves. damage={damage}"
        )

    async def _run(self, program: Program[Result]) -> Result:
        result = await self._environment.store.run(program)
        self.answered_s = asyncio.get_running_loop().time()
        return result

    def _changed(self, image: MetadataImage) -> None:
        self.image = image
        for changed, end_offset in self._waiting.items():
            if image.end_offset > end_offset and not changed.done():
                changed.set_result(None)
        for listener in tuple(self._listeners):
            listener(image)

    async def _tidy(self) -> None:
        """Bound what a newcomer reads: take the tail into the manifest, write a snapshot."""
        store, nonce = self._environment.store, new_nonce(self._environment.entropy)
        try:
            if len(self._view.tail) >= TAIL_SEGMENTS_MAX:
                plan = absorb_tail(TAIL_SEGMENTS_MAX, 0)
                await self._read_on(await self._run(change(self._view, plan, nonce)))
            if snapshot.is_due(self.image, self._snapshot_end):
                end = self.image.end_offset
                await store.put(LAYOUT.key(LAYOUT.snapshot_name(end)), snapshot.encode(self.image))
                self._snapshot_end = end
        except (Unavailable, OutcomeUnknown, DataCorrupt) as error:
            logger.warning("metadata log not tidied, tried again after the next append %s", error)

    async def _newest_snapshot(self) -> MetadataImage:
        store = self._environment.store
        ends = [LAYOUT.snapshot_end(i.key) for i in await store.list(LAYOUT.snapshot_prefix)]
        for end in sorted((e for e in ends if e is not None), reverse=True):
            try:
                data = await store.get(LAYOUT.key(LAYOUT.snapshot_name(end)))
            except ObjectNotFound:
                continue
            image = snapshot.decode(data, end)
            if image is not None:
                self._snapshot_end = end
                return image
        return MetadataImage()
