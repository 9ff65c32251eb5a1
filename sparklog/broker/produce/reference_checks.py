"""Checks of reference batches: the objects that they name, and the schemas of their records.

Rules PRODUCE-5 and PRODUCE-8 are kept here.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from typing import Final

from sparklog.broker.partition.recovering import Find
from sparklog.broker.produce.request import (
    CheckedReferences,
    ProduceRequest,
    timed_out,
    without_frames,
)
from sparklog.broker.produce.schema_topic import SchemaTopic
from sparklog.broker.runtime.environment import Environment
from sparklog.core.errors import InvalidRecord, SparklogError, UnknownSchema
from sparklog.core.types import PartitionId
from sparklog.log.layout import PartitionLayout
from sparklog.log.segment import column_reader
from sparklog.log.segment.segment import Reference, Segment
from sparklog.log.tail.batch_validator import BatchRules, check_reference
from sparklog.log.tail.referenced_schemas import check_piece, pieces_to_check, unfolded_bytes
from sparklog.log.tail.references import (
    OBJECTS_CHECKED_AT_ONCE,
    TEXT_BYTES_MAX,
    ReferenceBatch,
    check_references,
    open_referenced,
)
from sparklog.protocol.records.header import REFERENCE_BIT, BytesLike, has_attribute

REFERENCES_CHECKED_AT_ONCE: Final = 16
"""Partitions of one request whose objects are looked at side by side."""
PASSED_S: Final = 600.0
PASSED_MAX: Final = 16_384
"""Number of objects that are not read again within PASSED_S after they passed."""


class _FirstLook:
    """The one look at the registry's topic that a request takes."""

    def __init__(self, schemas: SchemaTopic) -> None:
        self._schemas = schemas
        self._taken = False

    async def take(self) -> bool:
        """Look, unless this request has done so before: False. Raises SparklogError."""
        if self._taken:
            return False
        self._taken = True
        await self._schemas.look()
        return True


class ReferenceChecks:
    """Looks whether reference batches point at what is as they say.

    For a topic with schema validation it reads the objects. Those that passed are remembered for a
    while. So a batch that takes longer than one request goes on where the last one stopped.
    """

    def __init__(self, environment: Environment, find: Find, schemas: SchemaTopic) -> None:
        """Look in the folders of the partitions that `find` returns."""
        self._environment = environment
        self._find = find
        self._schemas = schemas
        self._passed: OrderedDict[tuple[str, bool, bool], float] = OrderedDict()
        """Objects whose records had known schemas of values and keys, and when."""

    async def check(self, job: ProduceRequest) -> None:
        """Note what the references of a request say, or why they are refused."""
        lanes = asyncio.Semaphore(REFERENCES_CHECKED_AT_ONCE)

        async def check(where: PartitionId, data: BytesLike) -> None:
            try:
                async with asyncio.timeout_at(job.deadline):
                    job.references[where] = await self._opened(where, data, lanes)
            except TimeoutError:
                job.results[where] = timed_out(where)
            except SparklogError as error:
                job.results[where] = without_frames(error)

        await asyncio.gather(*(check(where, data) for where, data in job.batches.items()))

    async def _opened(
        self, where: PartitionId, data: BytesLike, lanes: asyncio.Semaphore
    ) -> CheckedReferences:
        if not has_attribute(data, REFERENCE_BIT):
            raise InvalidRecord("reference batches come in requests of their own")
        role = self._find(where)
        rules = role.rules.batches
        now_ms = self._environment.clock.now_ms()
        async with lanes:
            batch, content = await self._environment.unfold(
                2 * TEXT_BYTES_MAX, None, check_reference, data, rules, now_ms
            )
            if rules.needs_schemas:
                await self._check_schemas(role.layout, content, rules)
            else:
                await self._environment.store.run(check_references(role.layout, content))
        return CheckedReferences(batch, content, rules)

    async def _check_schemas(
        self, layout: PartitionLayout, content: ReferenceBatch, rules: BatchRules
    ) -> None:
        """Check the objects, and look up the schema of each record (PRODUCE-8)."""
        look = _FirstLook(self._schemas)
        if self._schemas.is_old:
            await look.take()
        for at in range(0, len(content.references), OBJECTS_CHECKED_AT_ONCE):
            some = content.references[at : at + OBJECTS_CHECKED_AT_ONCE]
            segments = await self._environment.store.run(open_referenced(layout, some))
            for one, segment in zip(some, segments, strict=True):
                await self._check_object(layout, one, segment, rules, look)

    async def _check_object(
        self,
        layout: PartitionLayout,
        one: Reference,
        segment: Segment,
        rules: BatchRules,
        look: _FirstLook,
    ) -> None:
        key = (layout.key(one.object), rules.value_schemas, rules.key_schemas)
        now_s = asyncio.get_running_loop().time()
        if now_s - self._passed.get(key, -PASSED_S) < PASSED_S:
            return
        for piece in pieces_to_check(layout, one, segment, rules):
            fetched = await self._environment.store.run(column_reader.fetch(piece))
            if fetched is None:
                raise InvalidRecord(f"reference batch refused: no object. object={piece.object}")
            try:
                await self._check_piece(piece, fetched, rules)
            except UnknownSchema:
                if not await look.take():
                    raise
                await self._check_piece(piece, fetched, rules)
        self._passed[key] = now_s
        self._passed.move_to_end(key)
        while len(self._passed) > PASSED_MAX:
            self._passed.popitem(last=False)

    async def _check_piece(
        self,
        piece: column_reader.ColumnPiece,
        fetched: list[tuple[int, bytes]],
        rules: BatchRules,
    ) -> None:
        await self._environment.unfold(
            unfolded_bytes(piece), None, check_piece, piece, fetched, rules, self._schemas.known
        )
