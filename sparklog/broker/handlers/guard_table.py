"""The guard of each API: which rights a request of a client needs. Source: KafkaApis of Kafka 4.4.

Brokers of the cluster pass by the guards. A right of CLUSTER_ACTION makes no client a broker: the
handlers of requests between brokers check that themselves; see `brokers_only`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from sparklog.broker.handlers import (
    group_guards,
    record_guards,
    share_guards,
    token_guards,
    topic_guards,
)
from sparklog.broker.handlers.guards import (
    Gate,
    Guard,
    GuardedCall,
    ItemCheck,
    config_resource,
    group_resource,
    topic_resource,
    transactional_id_resource,
)
from sparklog.broker.handlers.refusals import (
    ITSELF,
    ItemList,
    blank_response,
    response_type,
    same,
)
from sparklog.core.errors import SparklogError
from sparklog.protocol.api_keys import Api
from sparklog.security.acls import AclOperation, ResourceType

_READ, _WRITE, _CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
_DELETE, _ALTER, _DESCRIBE = AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE
_DESCRIBE_CONFIGS: Final = AclOperation.DESCRIBE_CONFIGS
_ALTER_CONFIGS: Final = AclOperation.ALTER_CONFIGS
_CLUSTER, _GROUP = ResourceType.CLUSTER, ResourceType.GROUP


def _of_topics(keys: dict[str, str], asked: str, answered: str, part: dict[str, str]) -> ItemList:
    """Return the lists of topics whose partitions have codes of their own."""
    return ItemList("topics", "topics", keys, ItemList(asked, answered, part))


_BY_NAME: Final = _of_topics(same("name"), "partitions", "partitions", same("partition_index"))
_BY_NAME_OR_ID: Final = _of_topics(
    same("name", "topic_id"), "partitions", "partitions", same("partition_index")
)
_EPOCHS: Final = _of_topics(same("topic"), "partitions", "partitions", same("partition"))
_PRODUCERS: Final = _of_topics(
    same("name"), "partition_indexes", "partitions", {"partition_index": ITSELF}
)
_MARKERS: Final = ItemList(
    "markers",
    "markers",
    same("producer_id"),
    _of_topics(same("name"), "partition_indexes", "partitions", {"partition_index": ITSELF}),
)
_SHARE_STATES: Final = ItemList(
    "topics",
    "results",
    same("topic_id"),
    ItemList("partitions", "partitions", same("partition")),
)
_ELECTED: Final = ItemList(
    "topic_partitions",
    "replica_election_results",
    same("topic"),
    ItemList("partitions", "partition_result", {"partition_id": ITSELF}),
)
_REASSIGNED: Final = ItemList(
    "topics",
    "responses",
    same("name"),
    ItemList("partitions", "partitions", same("partition_index")),
)
_QUOTAS: Final = ItemList(
    "entries", "entries", {}, ItemList("entity", "entity", same("entity_type", "entity_name"))
)
_CONFIG_KEYS: Final = same("resource_type", "resource_name")


def _scram_refused(request: Any, error: SparklogError) -> Any:
    names = dict.fromkeys(one.name for one in (*request.deletions, *request.upsertions))
    users = ItemList("", "results", {"user": ITSELF})
    return blank_response(
        request, error, results=users.refused(response_type(request), names, error)
    )


def _log_dirs_refused(request: Any, error: SparklogError) -> Any:
    lists = ItemList(
        "topics",
        "results",
        {"topic_name": "name"},
        ItemList("partitions", "partitions", {"partition_index": ITSELF}),
    )
    moved = [topic for one in request.dirs for topic in one.topics]
    return blank_response(
        request, error, results=lists.refused(response_type(request), moved, error)
    )


async def no_check(call: GuardedCall) -> Any:
    """Let everybody ask: for versions, and what a handler allows to brokers only."""
    return await call.proceed()


def _group(operation: AclOperation) -> Guard:
    return Guard((Gate(operation, _GROUP, "group_id"),))


def _cluster(operation: AclOperation, *lists: ItemList) -> Guard:
    return Guard((Gate(operation, _CLUSTER),), lists)


def _topics(operation: AclOperation, lists: ItemList) -> Guard:
    return Guard(items=ItemCheck(operation, topic_resource, (lists,)))


def _configs(operation: AclOperation, answered: str) -> Guard:
    lists = ItemList("resources", answered, _CONFIG_KEYS)
    return Guard(items=ItemCheck(operation, config_resource, (lists,)))


GUARDS: Final[dict[Api, Callable[[GuardedCall], Awaitable[Any]]]] = {
    Api.PRODUCE: record_guards.produce,
    Api.FETCH: record_guards.fetch,
    Api.LIST_OFFSETS: _topics(_DESCRIBE, _BY_NAME),
    Api.METADATA: topic_guards.metadata,
    Api.OFFSET_COMMIT: Guard(
        (Gate(_READ, _GROUP, "group_id"),),
        (_BY_NAME_OR_ID,),
        ItemCheck(_READ, topic_resource, (_BY_NAME_OR_ID,)),
    ),
    Api.OFFSET_FETCH: group_guards.offset_fetch,
    Api.FIND_COORDINATOR: group_guards.find_coordinator,
    Api.JOIN_GROUP: _group(_READ),
    Api.HEARTBEAT: _group(_READ),
    Api.LEAVE_GROUP: _group(_READ),
    Api.SYNC_GROUP: _group(_READ),
    Api.DESCRIBE_GROUPS: Guard(
        items=ItemCheck(
            _DESCRIBE, group_resource, (ItemList("groups", "groups", {"group_id": ITSELF}),)
        ),
        after=group_guards.described_groups,
    ),
    Api.LIST_GROUPS: Guard(after=group_guards.listed_groups),
    Api.API_VERSIONS: no_check,
    Api.SASL_HANDSHAKE: no_check,
    Api.SASL_AUTHENTICATE: no_check,
    Api.CREATE_TOPICS: topic_guards.create_topics,
    Api.DELETE_TOPICS: topic_guards.delete_topics,
    Api.DELETE_RECORDS: _topics(_DELETE, _BY_NAME),
    Api.INIT_PRODUCER_ID: record_guards.init_producer_id,
    Api.OFFSET_FOR_LEADER_EPOCH: Guard(
        items=ItemCheck(
            _DESCRIBE, topic_resource, (_EPOCHS,), on_cluster=AclOperation.CLUSTER_ACTION
        )
    ),
    Api.TXN_OFFSET_COMMIT: Guard(
        (record_guards.WRITES_TRANSACTION, Gate(_READ, _GROUP, "group_id")),
        (_BY_NAME_OR_ID,),
        ItemCheck(_READ, topic_resource, (_BY_NAME_OR_ID,)),
    ),
    Api.ADD_PARTITIONS_TO_TXN: record_guards.add_partitions_to_txn,
    Api.ADD_OFFSETS_TO_TXN: Guard(
        (record_guards.WRITES_TRANSACTION, Gate(_READ, _GROUP, "group_id")),
    ),
    Api.END_TXN: Guard((record_guards.WRITES_TRANSACTION,)),
    Api.WRITE_TXN_MARKERS: Guard(
        (Gate(AclOperation.CLUSTER_ACTION, _CLUSTER, instead=_ALTER),), (_MARKERS,)
    ),
    Api.DESCRIBE_ACLS: _cluster(_DESCRIBE),
    Api.CREATE_ACLS: _cluster(_ALTER, ItemList("creations", "results", {})),
    Api.DELETE_ACLS: _cluster(_ALTER, ItemList("filters", "filter_results", {})),
    Api.DESCRIBE_CONFIGS: _configs(_DESCRIBE_CONFIGS, "results"),
    Api.ALTER_CONFIGS: _configs(_ALTER_CONFIGS, "responses"),
    Api.ALTER_REPLICA_LOG_DIRS: Guard((Gate(_ALTER, _CLUSTER),), refuse=_log_dirs_refused),
    Api.DESCRIBE_QUORUM: _cluster(_DESCRIBE),
    Api.UPDATE_FEATURES: _cluster(_ALTER),
    Api.DESCRIBE_LOG_DIRS: _cluster(_DESCRIBE),
    Api.CREATE_PARTITIONS: _topics(_ALTER, ItemList("topics", "results", same("name"))),
    Api.CREATE_DELEGATION_TOKEN: token_guards.create_delegation_token,
    Api.RENEW_DELEGATION_TOKEN: no_check,
    Api.EXPIRE_DELEGATION_TOKEN: no_check,
    Api.DESCRIBE_DELEGATION_TOKEN: Guard(after=token_guards.described_tokens),
    Api.DELETE_GROUPS: Guard(
        items=ItemCheck(
            _DELETE, group_resource, (ItemList("groups_names", "results", {"group_id": ITSELF}),)
        )
    ),
    Api.ELECT_LEADERS: _cluster(_ALTER, _ELECTED),
    Api.INCREMENTAL_ALTER_CONFIGS: _configs(_ALTER_CONFIGS, "responses"),
    Api.ALTER_PARTITION_REASSIGNMENTS: _cluster(_ALTER, _REASSIGNED),
    Api.LIST_PARTITION_REASSIGNMENTS: _cluster(_DESCRIBE),
    Api.OFFSET_DELETE: Guard(
        (Gate(_DELETE, _GROUP, "group_id"),),
        items=ItemCheck(_READ, topic_resource, (_BY_NAME,), asks_for_none=True),
    ),
    Api.DESCRIBE_CLIENT_QUOTAS: _cluster(_DESCRIBE_CONFIGS),
    Api.ALTER_CLIENT_QUOTAS: _cluster(_ALTER_CONFIGS, _QUOTAS),
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: _cluster(
        _DESCRIBE, ItemList("users", "results", {"user": "name"})
    ),
    Api.ALTER_USER_SCRAM_CREDENTIALS: Guard((Gate(_ALTER, _CLUSTER),), refuse=_scram_refused),
    Api.DESCRIBE_CLUSTER: Guard(after=topic_guards.described_cluster),
    Api.DESCRIBE_PRODUCERS: _topics(_READ, _PRODUCERS),
    Api.BROKER_HEARTBEAT: no_check,
    Api.CONSUMER_GROUP_HEARTBEAT: group_guards.consumer_group_heartbeat,
    Api.CONSUMER_GROUP_DESCRIBE: Guard(
        items=ItemCheck(
            _DESCRIBE, group_resource, (ItemList("group_ids", "groups", {"group_id": ITSELF}),)
        ),
        after=group_guards.described_consumer_groups,
    ),
    Api.DESCRIBE_TRANSACTIONS: Guard(
        items=ItemCheck(
            _DESCRIBE,
            transactional_id_resource,
            (ItemList("transactional_ids", "transaction_states", {"transactional_id": ITSELF}),),
        ),
        after=record_guards.described_transactions,
    ),
    Api.LIST_TRANSACTIONS: Guard(after=record_guards.listed_transactions),
    Api.GET_TELEMETRY_SUBSCRIPTIONS: no_check,
    Api.PUSH_TELEMETRY: no_check,
    Api.LIST_CONFIG_RESOURCES: _cluster(_DESCRIBE_CONFIGS),
    Api.DESCRIBE_TOPIC_PARTITIONS: topic_guards.describe_topic_partitions,
    Api.SHARE_GROUP_HEARTBEAT: group_guards.share_group_heartbeat,
    Api.SHARE_GROUP_DESCRIBE: Guard(
        items=ItemCheck(
            _DESCRIBE, group_resource, (ItemList("group_ids", "groups", {"group_id": ITSELF}),)
        ),
        after=group_guards.described_consumer_groups,
    ),
    Api.SHARE_FETCH: record_guards.shared_records,
    Api.SHARE_ACKNOWLEDGE: record_guards.shared_records,
    Api.INITIALIZE_SHARE_GROUP_STATE: _cluster(AclOperation.CLUSTER_ACTION, _SHARE_STATES),
    Api.READ_SHARE_GROUP_STATE: _cluster(AclOperation.CLUSTER_ACTION, _SHARE_STATES),
    Api.WRITE_SHARE_GROUP_STATE: _cluster(AclOperation.CLUSTER_ACTION, _SHARE_STATES),
    Api.DELETE_SHARE_GROUP_STATE: _cluster(AclOperation.CLUSTER_ACTION, _SHARE_STATES),
    Api.READ_SHARE_GROUP_STATE_SUMMARY: _cluster(AclOperation.CLUSTER_ACTION, _SHARE_STATES),
    Api.DESCRIBE_SHARE_GROUP_OFFSETS: share_guards.describe_share_group_offsets,
    Api.ALTER_SHARE_GROUP_OFFSETS: share_guards.alter_share_group_offsets,
    Api.DELETE_SHARE_GROUP_OFFSETS: share_guards.delete_share_group_offsets,
}
"""Each API that has a handler, with its guard."""
