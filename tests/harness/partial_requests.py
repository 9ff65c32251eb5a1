"""Requests that name resources with and without rights, and what of their answers is compared.

A client with the rights of `HALF_RIGHTS` may do something with the topics `t` and `missing`, with
the group `g` and the transactional id `x`. It has no right on the topics `u` and `hidden` and the
group `h`. There are no topics `missing` and `hidden`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from sparklog.protocol.api_keys import Api
from sparklog.security.acls import AclOperation as Do
from sparklog.security.acls import ResourceType
from tests.harness.access_case import Grant
from tests.harness.plain_requests import plain_request
from tests.harness.replica_cluster import batch

HALF_RIGHTS: Final[tuple[Grant, ...]] = (
    (Do.READ, ResourceType.TOPIC, "t"),
    (Do.WRITE, ResourceType.TOPIC, "t"),
    (Do.ALTER, ResourceType.TOPIC, "t"),
    (Do.READ, ResourceType.TOPIC, "missing"),
    (Do.WRITE, ResourceType.TOPIC, "missing"),
    (Do.READ, ResourceType.GROUP, "g"),
    (Do.WRITE, ResourceType.TRANSACTIONAL_ID, "x"),
)
_NOT_COMPARED: Final = frozenset({"brokers", "configs", "aborted_transactions"})
NAMES: Final = ("t", "u", "missing", "hidden")
SOON: Final = timedelta(seconds=5)
_COMPARED: Final = frozenset(
    {
        "name", "topic", "topic_name", "group_id", "key", "resource_name", "resource_type",
        "partition_index", "partition", "index", "is_internal", "transactional_id",
    }
)  # fmt: skip


def named(**more: Any) -> list[dict[str, Any]]:
    """Return the four topics with these fields."""
    return [{"name": name, **more} for name in NAMES]


def partial_requests(ids: Mapping[str, UUID]) -> dict[str, Any]:
    """Return the requests by their names; `ids` are those of the topics `t` and `u`."""
    by_id = [*({"topic_id": one} for one in ids.values()), {"topic_id": UUID(int=9)}]
    part, numbers = [{"partition_index": 0}], [0]
    operations = {"include_topic_authorized_operations": True, "allow_auto_topic_creation": False}
    group = {"group_id": "g", "member_epoch": -1}
    data = [{"index": 0, "records": batch(b"x")}]
    fetched = [{"partition": 0, "partition_max_bytes": 1000}]
    resources = [{"resource_type": 2, "resource_name": name} for name in NAMES]
    return {
        "metadata": plain_request(Api.METADATA, 12, topics=named(), **operations),
        "metadata of all": plain_request(Api.METADATA, 12, topics=None, **operations),
        "metadata by id": plain_request(Api.METADATA, 12, topics=by_id, **operations),
        "cluster": plain_request(
            Api.METADATA, 10, topics=[], include_cluster_authorized_operations=True, **operations
        ),
        "pages": plain_request(
            Api.DESCRIBE_TOPIC_PARTITIONS, 0, topics=named(), response_partition_limit=99
        ),
        "pages of all": plain_request(
            Api.DESCRIBE_TOPIC_PARTITIONS, 0, response_partition_limit=99
        ),
        "list offsets": plain_request(
            Api.LIST_OFFSETS, 7, replica_id=-1, topics=named(partitions=part)
        ),
        "produce": plain_request(
            Api.PRODUCE, 9, acks=1, timeout=SOON, topic_data=named(partition_data=data)
        ),
        "fetch": plain_request(
            Api.FETCH, 12, replica_id=-1, session_epoch=-1, max_bytes=1000,
            topics=[{"topic": name, "partitions": fetched} for name in NAMES],
        ),
        "commit": plain_request(
            Api.OFFSET_COMMIT, 8, group_id="g", generation_id_or_member_epoch=-1,
            topics=named(partitions=part),
        ),
        "committed": plain_request(
            Api.OFFSET_FETCH, 9,
            groups=[{**group, "topics": named(partition_indexes=numbers)}, {"group_id": "h"}],
        ),
        "all committed": plain_request(Api.OFFSET_FETCH, 9, groups=[{**group, "topics": None}]),
        "delete records": plain_request(
            Api.DELETE_RECORDS, 2, timeout=SOON, topics=named(partitions=part)
        ),
        "delete topics": plain_request(Api.DELETE_TOPICS, 6, timeout=SOON, topics=named()),
        "delete ids": plain_request(Api.DELETE_TOPICS, 6, timeout=SOON, topics=by_id),
        "groups": plain_request(
            Api.DESCRIBE_GROUPS, 5, groups=["g", "h"], include_authorized_operations=True
        ),
        "listed groups": plain_request(Api.LIST_GROUPS, 4),
        "configs": plain_request(Api.DESCRIBE_CONFIGS, 4, resources=resources),
        "coordinators": plain_request(Api.FIND_COORDINATOR, 4, coordinator_keys=["g", "h"]),
        "producers": plain_request(
            Api.DESCRIBE_PRODUCERS, 0, topics=named(partition_indexes=numbers)
        ),
        "partitions": plain_request(
            Api.CREATE_PARTITIONS, 3, timeout=SOON, validate_only=True, topics=named(count=3)
        ),
        "transaction": plain_request(
            Api.ADD_PARTITIONS_TO_TXN, 3, v3_and_below_transactional_id="x",
            v3_and_below_topics=named(partitions=numbers),
        ),
    }  # fmt: skip


def compared(answer: Any, names: Mapping[UUID, str]) -> list[Any]:
    """Return names, codes and operations of an answer, without regard to their order.

    Args:
        answer: a structure of a response.
        names: the names of the topics by their ids.
    """
    found: list[Any] = []
    for one in fields(answer):
        value = getattr(answer, one.name)
        is_code = one.name.endswith(("error_code", "authorized_operations"))
        if one.name == "topic_id":
            found.append((one.name, names.get(value)))
        elif is_code or one.name in _COMPARED:
            found.append((one.name, value if value is None else int(value) if is_code else value))
        elif isinstance(value, tuple) and one.name not in _NOT_COMPARED:
            parts = [compared(part, names) for part in value if is_dataclass(part)]
            found.append((one.name, sorted(parts, key=str)))
    return found
