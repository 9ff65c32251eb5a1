"""Handlers: one module per API, each from a request entity to a response entity.

No handler touches a socket, so a simulation calls them as the server does. A request of a client
passes the guard of its API first, if brokers have an authorizer; see `guard_table`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from sparklog.broker.handlers import (
    acls,
    classic_groups,
    cluster,
    configs,
    consumer_groups,
    delegation_tokens,
    fetch,
    group_offsets,
    kafka_only,
    metadata,
    offsets,
    produce,
    quotas,
    sasl,
    scram_credentials,
    share_fetch,
    share_groups,
    share_offsets,
    share_states,
    telemetry,
    topics,
    transaction_admin,
    transactions,
)
from sparklog.broker.handlers.access import access_of
from sparklog.broker.handlers.guard_table import GUARDS
from sparklog.broker.handlers.guards import GuardedCall
from sparklog.broker.network.request_time import RequestTime
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.request import RequestContext
from sparklog.protocol.api_keys import Api

Handler = Callable[[BrokerNode, Any, RequestContext], Awaitable[Any]]

HANDLERS: Final[dict[Api, Handler]] = {
    Api.PRODUCE: produce.handle,
    Api.FETCH: fetch.handle,
    Api.LIST_OFFSETS: offsets.list_offsets,
    Api.METADATA: metadata.metadata,
    Api.OFFSET_COMMIT: group_offsets.offset_commit,
    Api.OFFSET_FETCH: group_offsets.offset_fetch,
    Api.FIND_COORDINATOR: metadata.find_coordinator,
    Api.JOIN_GROUP: classic_groups.join_group,
    Api.HEARTBEAT: classic_groups.heartbeat,
    Api.LEAVE_GROUP: classic_groups.leave_group,
    Api.SYNC_GROUP: classic_groups.sync_group,
    Api.DESCRIBE_GROUPS: classic_groups.describe_groups,
    Api.LIST_GROUPS: classic_groups.list_groups,
    Api.SASL_HANDSHAKE: sasl.sasl_handshake,
    Api.API_VERSIONS: metadata.api_versions,
    Api.CREATE_TOPICS: topics.create_topics,
    Api.DELETE_TOPICS: topics.delete_topics,
    Api.DELETE_RECORDS: offsets.delete_records,
    Api.INIT_PRODUCER_ID: transactions.init_producer_id,
    Api.OFFSET_FOR_LEADER_EPOCH: offsets.offset_for_leader_epoch,
    Api.TXN_OFFSET_COMMIT: transactions.txn_offset_commit,
    Api.ADD_PARTITIONS_TO_TXN: transactions.add_partitions_to_txn,
    Api.ADD_OFFSETS_TO_TXN: transactions.add_offsets_to_txn,
    Api.END_TXN: transactions.end_txn,
    Api.WRITE_TXN_MARKERS: transactions.write_txn_markers,
    Api.DESCRIBE_ACLS: acls.describe,
    Api.CREATE_ACLS: acls.create,
    Api.DELETE_ACLS: acls.delete,
    Api.DESCRIBE_CONFIGS: configs.describe_configs,
    Api.ALTER_CONFIGS: configs.replace_all,
    Api.ALTER_REPLICA_LOG_DIRS: kafka_only.alter_replica_log_dirs,
    Api.DESCRIBE_QUORUM: kafka_only.describe_quorum,
    Api.UPDATE_FEATURES: kafka_only.update_features,
    Api.DESCRIBE_LOG_DIRS: cluster.describe_log_dirs,
    Api.SASL_AUTHENTICATE: sasl.sasl_authenticate,
    Api.CREATE_PARTITIONS: topics.create_partitions,
    Api.CREATE_DELEGATION_TOKEN: delegation_tokens.create,
    Api.RENEW_DELEGATION_TOKEN: delegation_tokens.renew,
    Api.EXPIRE_DELEGATION_TOKEN: delegation_tokens.expire,
    Api.DESCRIBE_DELEGATION_TOKEN: delegation_tokens.describe,
    Api.DELETE_GROUPS: classic_groups.delete_groups,
    Api.ELECT_LEADERS: cluster.elect_leaders,
    Api.INCREMENTAL_ALTER_CONFIGS: configs.incremental,
    Api.ALTER_PARTITION_REASSIGNMENTS: cluster.alter,
    Api.LIST_PARTITION_REASSIGNMENTS: cluster.list_ongoing,
    Api.OFFSET_DELETE: group_offsets.offset_delete,
    Api.DESCRIBE_CLIENT_QUOTAS: quotas.describe,
    Api.ALTER_CLIENT_QUOTAS: quotas.alter,
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: scram_credentials.describe,
    Api.ALTER_USER_SCRAM_CREDENTIALS: scram_credentials.alter,
    Api.DESCRIBE_CLUSTER: metadata.describe_cluster,
    Api.DESCRIBE_PRODUCERS: transaction_admin.describe_producers,
    Api.BROKER_HEARTBEAT: cluster.broker_heartbeat,
    Api.CONSUMER_GROUP_HEARTBEAT: consumer_groups.consumer_group_heartbeat,
    Api.CONSUMER_GROUP_DESCRIBE: consumer_groups.consumer_group_describe,
    Api.DESCRIBE_TRANSACTIONS: transaction_admin.describe_transactions,
    Api.LIST_TRANSACTIONS: transaction_admin.list_transactions,
    Api.GET_TELEMETRY_SUBSCRIPTIONS: telemetry.get_subscriptions,
    Api.PUSH_TELEMETRY: telemetry.push,
    Api.LIST_CONFIG_RESOURCES: configs.list_config_resources,
    Api.DESCRIBE_TOPIC_PARTITIONS: metadata.describe_topic_partitions,
    Api.SHARE_GROUP_HEARTBEAT: share_groups.share_group_heartbeat,
    Api.SHARE_GROUP_DESCRIBE: share_groups.share_group_describe,
    Api.SHARE_FETCH: share_fetch.share_fetch,
    Api.SHARE_ACKNOWLEDGE: share_fetch.share_acknowledge,
    Api.INITIALIZE_SHARE_GROUP_STATE: share_states.initialize,
    Api.READ_SHARE_GROUP_STATE: share_states.read,
    Api.WRITE_SHARE_GROUP_STATE: share_states.write,
    Api.DELETE_SHARE_GROUP_STATE: share_states.delete,
    Api.READ_SHARE_GROUP_STATE_SUMMARY: share_states.summary,
    Api.DESCRIBE_SHARE_GROUP_OFFSETS: share_offsets.describe,
    Api.ALTER_SHARE_GROUP_OFFSETS: share_offsets.alter,
    Api.DELETE_SHARE_GROUP_OFFSETS: share_offsets.delete,
}
"""Every API of `protocol.api.APIS`, with who answers it."""

refuse = metadata.refuse

UNTIMED: Final = frozenset(
    {Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE, Api.WRITE_TXN_MARKERS, Api.BROKER_HEARTBEAT}
)
"""APIs whose time no quota limits: logins, and actions of the cluster, as in Kafka."""


def request_time(node: BrokerNode, context: RequestContext, api: int) -> RequestTime | None:
    """Return what charges a client for the time of its request; None if that has no quota."""
    time = node.throttle.request_time(node.metadata.image.client_quotas, context)
    return None if time is None or api in UNTIMED or node.is_broker(context) else time


async def handle(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return the answer to a request entity; None or `NoResponse` where its sender wants none.

    Waits for the broker's start, except with heartbeats of other brokers.

    Raises:
        CloseConnection: hang up instead of answering.
    """
    if not node.has_started and request.__api_key__ != Api.BROKER_HEARTBEAT:
        await node.wait_started()
    api = request.__api_key__
    access = access_of(node, context, api)
    if access is None:
        return await HANDLERS[api](node, request, context)
    image = node.metadata.image
    return await GUARDS[api](GuardedCall(node, request, context, access, HANDLERS[api], image))
