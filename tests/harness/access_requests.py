"""One request of each API, the ACLs that it needs, and the codes that a stranger gets.

Each request names the topic `t`, the group `g` and the transactional id `x`. Older versions are
here where their shape is another one.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from sparklog.protocol.api_keys import Api
from sparklog.security.acls import AclOperation as Do
from sparklog.security.acls import ResourceType
from tests.harness.access_case import (
    CLUSTER,
    GROUP,
    PART,
    SOON,
    TOKEN,
    TOPIC_0,
    TRANSACTION,
    AccessCase,
    on_cluster,
    on_group,
    on_topic,
    on_transaction,
)
from tests.harness.access_data import offset_cases, record_cases, share_cases, topic_cases
from tests.harness.plain_requests import plain_request


def group_cases() -> list[AccessCase]:
    """Return the requests about groups."""
    read, g = on_group(Do.READ), {"group_id": "g", "member_id": "m"}
    span = timedelta(seconds=30)
    protocols = [{"name": "range", "metadata": b""}]
    return [
        AccessCase(
            plain_request(
                Api.JOIN_GROUP,
                9,
                session_timeout=span,
                protocol_type="consumer",
                protocols=protocols,
                **g,
            ),
            [GROUP],
            read,
        ),
        AccessCase(
            plain_request(Api.SYNC_GROUP, 5, protocol_type="consumer", protocol_name="range", **g),
            [GROUP],
            read,
        ),
        AccessCase(plain_request(Api.HEARTBEAT, 4, **g), [GROUP], read),
        AccessCase(
            plain_request(Api.LEAVE_GROUP, 5, group_id="g", members=[{"member_id": "m"}]),
            [GROUP],
            read,
        ),
        AccessCase(plain_request(Api.LEAVE_GROUP, 2, **g), [GROUP], read),
        AccessCase(
            plain_request(
                Api.CONSUMER_GROUP_HEARTBEAT,
                1,
                member_epoch=0,
                rebalance_timeout=span,
                subscribed_topic_names=["t"],
                topic_partitions=[],
                **g,
            ),
            [GROUP],
            read + on_topic(Do.DESCRIBE),
        ),
        AccessCase(
            plain_request(Api.DESCRIBE_GROUPS, 6, groups=["g"]), [GROUP], on_group(Do.DESCRIBE)
        ),
        AccessCase(
            plain_request(Api.CONSUMER_GROUP_DESCRIBE, 1, group_ids=["g2"]),
            [GROUP],
            ((Do.DESCRIBE, ResourceType.GROUP, "g2"),),
        ),
        AccessCase(plain_request(Api.LIST_GROUPS, 5), [0]),
        AccessCase(
            plain_request(Api.DELETE_GROUPS, 3, groups_names=["g"]), [GROUP], on_group(Do.DELETE)
        ),
        AccessCase(
            plain_request(Api.FIND_COORDINATOR, 6, key_type=0, coordinator_keys=["g", "g2"]),
            [GROUP, GROUP],
            (*on_group(Do.DESCRIBE), (Do.DESCRIBE, ResourceType.GROUP, "g2")),
        ),
        AccessCase(
            plain_request(Api.FIND_COORDINATOR, 3, key_type=1, key="x"),
            [TRANSACTION],
            on_transaction(Do.DESCRIBE),
        ),
        AccessCase(
            plain_request(Api.FIND_COORDINATOR, 6, key_type=2, coordinator_keys=["g:a:0"]),
            [CLUSTER],
            on_cluster(Do.CLUSTER_ACTION),
        ),
    ]


def share_group_cases() -> list[AccessCase]:
    """Return the requests about share groups."""
    joins = {"group_id": "g", "member_id": "m", "subscribed_topic_names": ["t"]}
    return [
        AccessCase(
            plain_request(Api.SHARE_GROUP_HEARTBEAT, 1, member_epoch=0, **joins),
            [GROUP],
            on_group(Do.READ) + on_topic(Do.DESCRIBE),
        ),
        AccessCase(
            plain_request(Api.SHARE_GROUP_DESCRIBE, 1, group_ids=["g2"]),
            [GROUP],
            ((Do.DESCRIBE, ResourceType.GROUP, "g2"),),
        ),
    ]


def transaction_cases(topic_id: Any) -> list[AccessCase]:
    """Return the requests about transactions."""
    writes, producer = on_transaction(Do.WRITE), {"producer_id": 7, "producer_epoch": 0}
    x = {"transactional_id": "x", **producer}
    return [
        AccessCase(
            plain_request(
                Api.INIT_PRODUCER_ID,
                5,
                transactional_id="x",
                transaction_timeout=SOON,
                producer_id=-1,
                producer_epoch=-1,
            ),
            [TRANSACTION],
            writes,
        ),
        AccessCase(
            plain_request(Api.INIT_PRODUCER_ID, 5, producer_id=-1, producer_epoch=-1),
            [CLUSTER],
            on_topic(Do.WRITE),
        ),
        AccessCase(
            plain_request(Api.INIT_PRODUCER_ID, 1),
            [CLUSTER],
            on_cluster(Do.IDEMPOTENT_WRITE),
        ),
        AccessCase(
            plain_request(
                Api.ADD_PARTITIONS_TO_TXN,
                3,
                v3_and_below_transactional_id="x",
                v3_and_below_topics=[{"name": "t", "partitions": [0]}],
            ),
            [TRANSACTION],
            writes + on_topic(Do.WRITE),
        ),
        AccessCase(
            plain_request(Api.ADD_OFFSETS_TO_TXN, 4, group_id="g", **x),
            [TRANSACTION],
            writes + on_group(Do.READ),
        ),
        AccessCase(
            plain_request(
                Api.TXN_OFFSET_COMMIT,
                6,
                group_id="g",
                topics=[{"topic_id": topic_id, "partitions": [PART]}],
                **x,
            ),
            [TRANSACTION],
            writes + on_group(Do.READ) + on_topic(Do.READ),
        ),
        AccessCase(
            plain_request(Api.TXN_OFFSET_COMMIT, 3, group_id="g", topics=TOPIC_0, **x),
            [TRANSACTION],
            writes + on_group(Do.READ) + on_topic(Do.READ),
        ),
    ]


def transaction_end_cases() -> list[AccessCase]:
    """Return the requests that end transactions, and those that look at them."""
    writes, producer = on_transaction(Do.WRITE), {"producer_id": 7, "producer_epoch": 0}
    x = {"transactional_id": "x", **producer}
    marked = {"name": "t", "partition_indexes": [0]}
    return [
        AccessCase(plain_request(Api.END_TXN, 5, **x), [TRANSACTION], writes),
        AccessCase(
            plain_request(Api.WRITE_TXN_MARKERS, 2, markers=[{"topics": [marked], **producer}]),
            [CLUSTER],
            on_cluster(Do.ALTER),
        ),
        AccessCase(
            plain_request(Api.WRITE_TXN_MARKERS, 1, markers=[{"topics": [marked], **producer}]),
            [CLUSTER],
            on_cluster(Do.CLUSTER_ACTION),
        ),
        AccessCase(
            plain_request(Api.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["x"]),
            [TRANSACTION],
            on_transaction(Do.DESCRIBE),
        ),
        AccessCase(plain_request(Api.LIST_TRANSACTIONS, 2, duration_filter=-1), [0]),
    ]


def cluster_cases() -> list[AccessCase]:
    """Return the requests about the cluster, and those without a check."""
    alter, describe = on_cluster(Do.ALTER), on_cluster(Do.DESCRIBE)
    t = {"topic": "t", "partitions": [0]}
    any_acl = {"pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    acl = {"resource_type": 2, "resource_name": "t", "principal": "User:a", "host": "*",
           "resource_pattern_type": 3, "operation": 3, "permission_type": 3}  # fmt: skip
    return [
        AccessCase(
            plain_request(
                Api.API_VERSIONS, 4, client_software_name="c", client_software_version="1"
            ),
            [0],
        ),
        AccessCase(plain_request(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN"), [34]),
        AccessCase(plain_request(Api.SASL_AUTHENTICATE, 2, auth_bytes=b"x"), [34]),
        AccessCase(
            plain_request(Api.DESCRIBE_ACLS, 3, resource_type_filter=1, **any_acl),
            [CLUSTER],
            describe,
        ),
        AccessCase(plain_request(Api.CREATE_ACLS, 3, creations=[acl]), [CLUSTER], alter),
        AccessCase(
            plain_request(
                Api.DELETE_ACLS,
                3,
                filters=[{"resource_type_filter": 2, "resource_name_filter": "n", **any_acl}],
            ),
            [CLUSTER],
            alter,
        ),
        AccessCase(
            plain_request(
                Api.ALTER_REPLICA_LOG_DIRS,
                2,
                dirs=[{"path": "/", "topics": [{"name": "t", "partitions": [0, 1]}]}],
            ),
            [CLUSTER, CLUSTER],
            alter,
        ),
        AccessCase(plain_request(Api.DESCRIBE_LOG_DIRS, 5, topics=None), [CLUSTER], describe),
        AccessCase(plain_request(Api.DESCRIBE_LOG_DIRS, 1, topics=None), [], describe),
        AccessCase(
            plain_request(Api.ELECT_LEADERS, 2, topic_partitions=[t]), [CLUSTER, CLUSTER], alter
        ),
        AccessCase(plain_request(Api.ELECT_LEADERS, 0, topic_partitions=[t]), [CLUSTER], alter),
        AccessCase(plain_request(Api.ELECT_LEADERS, 2, topic_partitions=None), [CLUSTER], alter),
        AccessCase(
            plain_request(Api.ALTER_PARTITION_REASSIGNMENTS, 1, topics=TOPIC_0),
            [CLUSTER, CLUSTER],
            alter,
        ),
        AccessCase(plain_request(Api.LIST_PARTITION_REASSIGNMENTS, 0), [CLUSTER], describe),
    ]


def cluster_entity_cases() -> list[AccessCase]:
    """Return the requests about quotas, users and features, and those of the whole cluster."""
    alter, describe = on_cluster(Do.ALTER), on_cluster(Do.DESCRIBE)
    deletion = [{"name": "u", "mechanism": 1}]
    entity = {"entity": [{"entity_type": "client-id", "entity_name": "c"}]}
    quorum = [{"topic_name": "__cluster_metadata", "partitions": [PART]}]
    return [
        AccessCase(
            plain_request(Api.DESCRIBE_CLIENT_QUOTAS, 1), [CLUSTER], on_cluster(Do.DESCRIBE_CONFIGS)
        ),
        AccessCase(
            plain_request(Api.ALTER_CLIENT_QUOTAS, 1, entries=[entity]),
            [CLUSTER],
            on_cluster(Do.ALTER_CONFIGS),
        ),
        AccessCase(
            plain_request(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=[{"name": "u"}]),
            [CLUSTER, CLUSTER],
            describe,
        ),
        AccessCase(
            plain_request(Api.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=deletion),
            [CLUSTER],
            alter,
        ),
        AccessCase(plain_request(Api.DESCRIBE_QUORUM, 2, topics=quorum), [CLUSTER], describe),
        AccessCase(
            plain_request(
                Api.UPDATE_FEATURES,
                2,
                feature_updates=[{"feature": "f", "max_version_level": 9, "upgrade_type": 1}],
            ),
            [CLUSTER],
            alter,
        ),
        AccessCase(plain_request(Api.DESCRIBE_CLUSTER, 2, endpoint_type=1), [0]),
        AccessCase(
            plain_request(Api.LIST_CONFIG_RESOURCES, 1),
            [CLUSTER],
            on_cluster(Do.DESCRIBE_CONFIGS),
        ),
        AccessCase(plain_request(Api.GET_TELEMETRY_SUBSCRIPTIONS, 0), [0]),
        AccessCase(plain_request(Api.PUSH_TELEMETRY, 0), [42]),
        AccessCase(plain_request(Api.BROKER_HEARTBEAT, 1), [CLUSTER]),
    ]


def share_state_cases() -> list[AccessCase]:
    """Return the requests about share groups' states, which only brokers may send."""
    newest = {
        Api.INITIALIZE_SHARE_GROUP_STATE: 0,
        Api.READ_SHARE_GROUP_STATE: 0,
        Api.WRITE_SHARE_GROUP_STATE: 1,
        Api.DELETE_SHARE_GROUP_STATE: 0,
        Api.READ_SHARE_GROUP_STATE_SUMMARY: 1,
    }
    topics = [{"topic_id": UUID(int=1), "partitions": [{"partition": 0}, {"partition": 1}]}]
    return [
        AccessCase(plain_request(api, version, group_id="g", topics=topics), [CLUSTER, CLUSTER])
        for api, version in newest.items()
    ]


def token_cases() -> list[AccessCase]:
    """Return the requests about delegation tokens, to brokers without a key for tokens."""
    disabled, owner = 61, {"owner_principal_type": "User", "owner_principal_name": "bob"}
    another = ((Do.CREATE_TOKENS, ResourceType.USER, "User:bob"),)
    return [
        AccessCase(plain_request(Api.CREATE_DELEGATION_TOKEN, 3, **owner), [TOKEN], another),
        AccessCase(plain_request(Api.CREATE_DELEGATION_TOKEN, 1), [disabled]),
        AccessCase(plain_request(Api.RENEW_DELEGATION_TOKEN, 2), [disabled]),
        AccessCase(plain_request(Api.EXPIRE_DELEGATION_TOKEN, 2), [disabled]),
        AccessCase(plain_request(Api.DESCRIBE_DELEGATION_TOKEN, 3, owners=None), [disabled]),
    ]


def access_cases(topic_id: Any) -> list[AccessCase]:
    """Return all of them; `topic_id` is the id of `t`."""
    return [
        *record_cases(topic_id),
        *share_cases(topic_id),
        *offset_cases(topic_id),
        *topic_cases(topic_id),
        *group_cases(),
        *share_group_cases(),
        *transaction_cases(topic_id),
        *transaction_end_cases(),
        *cluster_cases(),
        *cluster_entity_cases(),
        *share_state_cases(),
        *token_cases(),
    ]
