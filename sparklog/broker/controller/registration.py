"""Registering a new incarnation of a broker, and deposing the one before it."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import Final

from sparklog.broker.controller.metadata_log import MetadataLog
from sparklog.broker.runtime.environment import Address, Environment
from sparklog.broker.runtime.identity import Identity
from sparklog.cluster.controller import controller as decisions
from sparklog.cluster.controller import election
from sparklog.cluster.metadata.features import LEVEL, check_may_start
from sparklog.cluster.metadata.image import Broker, MetadataImage
from sparklog.cluster.metadata.new_root import check_root_is_new
from sparklog.cluster.metadata.records import (
    BrokerEndpoint,
    ClusterRecord,
    Record,
    RegisterBrokerRecord,
)
from sparklog.core.entropy import new_nonce, new_topic_id
from sparklog.core.errors import NotServing, OutcomeUnknown, Unavailable
from sparklog.log.wal.sealing import seal

logger = logging.getLogger(__name__)

TRIES_MAX: Final = 20
RETRY_S: Final = 0.2


async def register(
    environment: Environment,
    metadata: MetadataLog,
    broker_id: int,
    address: Address,
    rack: str | None,
    endpoints: tuple[BrokerEndpoint, ...] = (),
) -> Identity:
    """Make a new incarnation the registered one, the controller too if there is none.

    The incarnation that was registered and not fenced is sealed first. It may be a crashed one of
    this broker, or a twin that shall end. One append besides.

    Raises:
        Unavailable, OutcomeUnknown: the store does not answer.
        UnsupportedLevel: the cluster needs a newer release; nothing was sealed.
        RootEmptied: the root lost its metadata log, and has other objects.
    """
    record = RegisterBrokerRecord(
        broker_id,
        new_nonce(environment.entropy),
        address.host,
        address.port,
        rack,
        endpoints,
        LEVEL,
    )
    cluster = ClusterRecord(
        new_topic_id(environment.entropy), new_nonce(environment.entropy), LEVEL
    )
    for left in reversed(range(TRIES_MAX)):
        try:
            known = await metadata.catch_up()
            if not known.end_offset:
                await environment.store.run(check_root_is_new())
            check_may_start(known)
            before = known.brokers.get(broker_id)
            if before is not None and not before.fenced and not _is(before, record):
                await environment.store.run(seal(before.wal, new_nonce(environment.entropy)))
            image = await metadata.decide(partial(_registered, record, before, cluster))
        except NotServing:
            continue  # registered by another one between the look and the append
        except (Unavailable, OutcomeUnknown) as error:
            if not left:
                raise
            logger.warning("not registered yet, trying again broker_id=%d %s", broker_id, error)
            await asyncio.sleep(RETRY_S)
            continue
        now = image.brokers.get(broker_id)
        if now is not None and _is(now, record):
            return Identity(broker_id, record.incarnation, now.epoch)
    raise Unavailable(
        "others keep registering with the id of this broker; give each broker its own node.id. "
        f"broker_id={broker_id}"
    )


def _is(broker: Broker, record: RegisterBrokerRecord) -> bool:
    return broker.incarnation == record.incarnation


def _registered(
    record: RegisterBrokerRecord,
    sealed: Broker | None,
    cluster: ClusterRecord,
    image: MetadataImage,
) -> list[Record]:
    check_may_start(image)
    now = image.brokers.get(record.broker_id)
    if now is not None and not now.fenced and not _is(now, record) and now != sealed:
        raise NotServing("another incarnation registered meanwhile, and is not sealed")
    records: list[Record] = [] if image.cluster_secret else [cluster]
    records += election.register(image, record)
    after = image.applied(records, image.end_offset + len(records))
    if not decisions.is_controller_live(after):
        own = record.broker_id, record.incarnation
        records += decisions.claim(after, *own, after.controller)
    return records
