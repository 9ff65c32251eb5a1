"""Broker ids of applications: each application on a root takes a block of ids, once. Pure.

BROKER-IDS-1: Blocks of two applications share no id. A block is decided on the newest image, so
    two applications that start at once get different ones.
BROKER-IDS-2: An application that starts again under its name gets the ids that it had. Its new
    brokers then take the place of the dead ones, and replicas stay where they are.
BROKER-IDS-3: Blocks begin at 1, 101, 201, and so on. A block skips ids of brokers that are
    registered under ids of their own choice.

Decision 75.
"""

from __future__ import annotations

from typing import Final

from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import BrokerIdsRecord, Record
from sparklog.core.application_names import BROKER_ID_MAX, check_application
from sparklog.core.errors import InvalidRequest

BLOCK: Final = 100
"""Ids between the beginnings of two blocks, to which an application may grow."""


def ids_of(image: MetadataImage, application: str) -> range:
    """Return the ids that an application has taken; empty if none."""
    taken = image.broker_ids.get(application)
    return range(0) if taken is None else range(taken.first, taken.first + taken.count)


def take_ids(image: MetadataImage, application: str, count: int) -> list[Record]:
    """Return the record that gives an application `count` ids; none if it has them.

    Raises:
        InvalidRequest: a bad name, or no ids are left.
    """
    check_application(application)
    if count <= len(ids_of(image, application)):
        return []
    others = [ids_of(image, name) for name in image.broker_ids if name != application]
    own = ids_of(image, application)
    strangers = [one for one in image.brokers if one not in own]
    first = own.start if own else 1
    while not _is_free(range(first, first + count), others, strangers):
        first = (first // BLOCK + 1) * BLOCK + 1
    if first + count - 1 > BROKER_ID_MAX:
        raise InvalidRequest(f"no broker ids are left. application={application!r} brokers={count}")
    return [BrokerIdsRecord(application, first, count)]


def _is_free(wanted: range, blocks: list[range], strangers: list[int]) -> bool:
    """Return True if no other application has one of the ids, and no other broker uses one."""
    apart = all(block.stop <= wanted.start or wanted.stop <= block.start for block in blocks)
    return apart and not any(one in wanted for one in strangers)
