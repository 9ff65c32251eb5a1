"""Handlers: one module per API, each from a request entity to a response entity.

No handler touches a socket, so a simulation calls them as the server does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from sparklog.broker.handlers import classic_groups as delete_groups
from sparklog.broker.handlers import classic_groups as describe_groups
from sparklog.broker.handlers import classic_groups as heartbeat
from sparklog.broker.handlers import classic_groups as join_group
from sparklog.broker.handlers import classic_groups as leave_group
from sparklog.broker.handlers import classic_groups as list_groups
from sparklog.broker.handlers import classic_groups as sync_group
from sparklog.broker.handlers import cluster as broker_heartbeat
from sparklog.broker.handlers import cluster as describe_log_dirs
from sparklog.broker.handlers import cluster as elect_leaders
from sparklog.broker.handlers import cluster as partition_reassignments
from sparklog.broker.handlers import configs as alter_configs
from sparklog.broker.handlers import configs as describe_configs
from sparklog.broker.handlers import configs as list_config_resources
from sparklog.broker.handlers import consumer_groups as consumer_group_describe
from sparklog.broker.handlers import consumer_groups as consumer_group_heartbeat
from sparklog.broker.handlers import fetch, metadata, produce
from sparklog.broker.handlers import group_offsets as offset_commit
from sparklog.broker.handlers import group_offsets as offset_delete
from sparklog.broker.handlers import group_offsets as offset_fetch
from sparklog.broker.handlers import kafka_only as alter_replica_log_dirs
from sparklog.broker.handlers import kafka_only as describe_quorum
from sparklog.broker.handlers import kafka_only as update_features
from sparklog.broker.handlers import metadata as api_versions
from sparklog.broker.handlers import metadata as describe_cluster
from sparklog.broker.handlers import metadata as describe_topic_partitions
from sparklog.broker.handlers import metadata as find_coordinator
from sparklog.broker.handlers import offsets as delete_records
from sparklog.broker.handlers import offsets as list_offsets
from sparklog.broker.handlers import offsets as offset_for_leader_epoch
from sparklog.broker.handlers import produce as produce_at_once
from sparklog.broker.handlers import quotas as client_quotas
from sparklog.broker.handlers import security as acls
from sparklog.broker.handlers import security as scram_credentials
from sparklog.broker.handlers import topics as create_partitions
from sparklog.broker.handlers import topics as create_topics
from sparklog.broker.handlers import topics as delete_topics
from sparklog.broker.handlers import transaction_admin as describe_producers
from sparklog.broker.handlers import transaction_admin as describe_transactions
from sparklog.broker.handlers import transaction_admin as list_transactions
from sparklog.broker.handlers import transactions as add_offsets_to_txn
from sparklog.broker.handlers import transactions as add_partitions_to_txn
from sparklog.broker.handlers import transactions as end_txn
from sparklog.broker.handlers import transactions as init_producer_id
from sparklog.broker.handlers import transactions as txn_offset_commit
from sparklog.broker.handlers import transactions as write_txn_markers
from sparklog.broker.handlers.services import HandlerNode
from sparklog.broker.runtime.request import RequestContext
from sparklog.protocol.api_keys import Api

Handler = Callable[[HandlerNode, Any, RequestContext], Awaitable[Any]]

HANDLERS: Final[dict[Api, Handler]] = {
    Api.PRODUCE: produce.handle,
    Api.FETCH: fetch.handle,
    Api.LIST_OFFSETS: list_offsets.list_offsets,
    Api.METADATA: metadata.metadata,
    Api.OFFSET_COMMIT: offset_commit.offset_commit,
    Api.OFFSET_FETCH: offset_fetch.offset_fetch,
    Api.FIND_COORDINATOR: find_coordinator.find_coordinator,
    Api.JOIN_GROUP: join_group.join_group,
    Api.HEARTBEAT: heartbeat.heartbeat,
    Api.LEAVE_GROUP: leave_group.leave_group,
    Api.SYNC_GROUP: sync_group.sync_group,
    Api.DESCRIBE_GROUPS: describe_groups.describe_groups,
    Api.LIST_GROUPS: list_groups.list_groups,
    Api.API_VERSIONS: api_versions.api_versions,
    Api.CREATE_TOPICS: create_topics.create_topics,
    Api.DELETE_TOPICS: delete_topics.delete_topics,
    Api.DELETE_RECORDS: delete_records.delete_records,
    Api.INIT_PRODUCER_ID: init_producer_id.init_producer_id,
    Api.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch.offset_for_leader_epoch,
    Api.TXN_OFFSET_COMMIT: txn_offset_commit.txn_offset_commit,
    Api.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn.add_partitions_to_txn,
    Api.ADD_OFFSETS_TO_TXN: add_offsets_to_txn.add_offsets_to_txn,
    Api.END_TXN: end_txn.end_txn,
    Api.WRITE_TXN_MARKERS: write_txn_markers.write_txn_markers,
    Api.DESCRIBE_ACLS: acls.describe,
    Api.CREATE_ACLS: acls.create,
    Api.DELETE_ACLS: acls.delete,
    Api.DESCRIBE_CONFIGS: describe_configs.describe_configs,
    Api.ALTER_CONFIGS: alter_configs.replace_all,
    Api.ALTER_REPLICA_LOG_DIRS: alter_replica_log_dirs.alter_replica_log_dirs,
    Api.DESCRIBE_QUORUM: describe_quorum.describe_quorum,
    Api.UPDATE_FEATURES: update_features.update_features,
    Api.DESCRIBE_LOG_DIRS: describe_log_dirs.describe_log_dirs,
    Api.CREATE_PARTITIONS: create_partitions.create_partitions,
    Api.DELETE_GROUPS: delete_groups.delete_groups,
    Api.ELECT_LEADERS: elect_leaders.elect_leaders,
    Api.INCREMENTAL_ALTER_CONFIGS: alter_configs.incremental,
    Api.ALTER_PARTITION_REASSIGNMENTS: partition_reassignments.alter,
    Api.LIST_PARTITION_REASSIGNMENTS: partition_reassignments.list_ongoing,
    Api.OFFSET_DELETE: offset_delete.offset_delete,
    Api.DESCRIBE_CLIENT_QUOTAS: client_quotas.describe,
    Api.ALTER_CLIENT_QUOTAS: client_quotas.alter,
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: scram_credentials.scram_credentials_describe,
    Api.ALTER_USER_SCRAM_CREDENTIALS: scram_credentials.alter,
    Api.DESCRIBE_CLUSTER: describe_cluster.describe_cluster,
    Api.DESCRIBE_PRODUCERS: describe_producers.describe_producers,
    Api.BROKER_HEARTBEAT: broker_heartbeat.broker_heartbeat,
    Api.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat.consumer_group_heartbeat,
    Api.CONSUMER_GROUP_DESCRIBE: consumer_group_describe.consumer_group_describe,
    Api.DESCRIBE_TRANSACTIONS: describe_transactions.describe_transactions,
    Api.LIST_TRANSACTIONS: list_transactions.list_transactions,
    Api.LIST_CONFIG_RESOURCES: list_config_resources.list_config_resources,
    Api.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions.describe_topic_partitions,
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
