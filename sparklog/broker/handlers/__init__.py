"""Handlers: one module per API, each from a request entity to a response entity.

No handler touches a socket, so a simulation calls them as the server does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from sparklog.broker.handlers import (
    acls,
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    alter_replica_log_dirs,
    api_versions,
    broker_heartbeat,
    client_quotas,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    partition_reassignments,
    produce,
    produce_at_once,
    scram_credentials,
    sync_group,
    txn_offset_commit,
    update_features,
    write_txn_markers,
)
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.protocol.api import Api

Handler = Callable[[HandlerNode, Any, RequestContext], Awaitable[Any]]

HANDLERS: Final[dict[Api, Handler]] = {
    Api.PRODUCE: produce.handle,
    Api.FETCH: fetch.handle,
    Api.LIST_OFFSETS: list_offsets.handle,
    Api.METADATA: metadata.handle,
    Api.OFFSET_COMMIT: offset_commit.handle,
    Api.OFFSET_FETCH: offset_fetch.handle,
    Api.FIND_COORDINATOR: find_coordinator.handle,
    Api.JOIN_GROUP: join_group.handle,
    Api.HEARTBEAT: heartbeat.handle,
    Api.LEAVE_GROUP: leave_group.handle,
    Api.SYNC_GROUP: sync_group.handle,
    Api.DESCRIBE_GROUPS: describe_groups.handle,
    Api.LIST_GROUPS: list_groups.handle,
    Api.API_VERSIONS: api_versions.handle,
    Api.CREATE_TOPICS: create_topics.handle,
    Api.DELETE_TOPICS: delete_topics.handle,
    Api.DELETE_RECORDS: delete_records.handle,
    Api.INIT_PRODUCER_ID: init_producer_id.handle,
    Api.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch.handle,
    Api.TXN_OFFSET_COMMIT: txn_offset_commit.handle,
    Api.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn.handle,
    Api.ADD_OFFSETS_TO_TXN: add_offsets_to_txn.handle,
    Api.END_TXN: end_txn.handle,
    Api.WRITE_TXN_MARKERS: write_txn_markers.handle,
    Api.DESCRIBE_ACLS: acls.describe,
    Api.CREATE_ACLS: acls.create,
    Api.DELETE_ACLS: acls.delete,
    Api.DESCRIBE_CONFIGS: describe_configs.handle,
    Api.ALTER_CONFIGS: alter_configs.replace_all,
    Api.ALTER_REPLICA_LOG_DIRS: alter_replica_log_dirs.handle,
    Api.DESCRIBE_QUORUM: describe_quorum.handle,
    Api.UPDATE_FEATURES: update_features.handle,
    Api.DESCRIBE_LOG_DIRS: describe_log_dirs.handle,
    Api.CREATE_PARTITIONS: create_partitions.handle,
    Api.DELETE_GROUPS: delete_groups.handle,
    Api.ELECT_LEADERS: elect_leaders.handle,
    Api.INCREMENTAL_ALTER_CONFIGS: alter_configs.incremental,
    Api.ALTER_PARTITION_REASSIGNMENTS: partition_reassignments.alter,
    Api.LIST_PARTITION_REASSIGNMENTS: partition_reassignments.list_ongoing,
    Api.OFFSET_DELETE: offset_delete.handle,
    Api.DESCRIBE_CLIENT_QUOTAS: client_quotas.describe,
    Api.ALTER_CLIENT_QUOTAS: client_quotas.alter,
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: scram_credentials.describe,
    Api.ALTER_USER_SCRAM_CREDENTIALS: scram_credentials.alter,
    Api.DESCRIBE_CLUSTER: describe_cluster.handle,
    Api.DESCRIBE_PRODUCERS: describe_producers.handle,
    Api.BROKER_HEARTBEAT: broker_heartbeat.handle,
    Api.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat.handle,
    Api.CONSUMER_GROUP_DESCRIBE: consumer_group_describe.handle,
    Api.DESCRIBE_TRANSACTIONS: describe_transactions.handle,
    Api.LIST_TRANSACTIONS: list_transactions.handle,
    Api.LIST_CONFIG_RESOURCES: list_config_resources.handle,
    Api.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions.handle,
}
"""Every API of `protocol.api.APIS`, with who answers it."""

refuse = api_versions.refuse
begin_produce = produce_at_once.begin


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Return the answer to a request entity; None or `Unanswered` where its sender wants none.

    Raises:
        CloseConnection: hang up instead of answering.
    """
    return await HANDLERS[request.__api_key__](node, request, context)
