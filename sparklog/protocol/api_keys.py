"""Kafka's API keys, with the versions that sparklog supports.

`Api` names the keys; `APIS` is the table. The broker advertises some minima below its lowest
supported version, as Kafka does. If Produce starts above 0, librdkafka 2.0 assumes that the broker
cannot read gzip, snappy or lz4. It then sends everything uncompressed without a warning.
Source: Kafka 4.4 `common/message/*.json`; Kafka protocol guide, API keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final


class Api(IntEnum):
    """API keys, by Kafka's numbers."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_HEARTBEAT = 63
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92

    @property
    def label(self) -> str:
        """Return Kafka's name for it, as its metrics spell it: `ListOffsets`."""
        return LABELS[self]


LABELS: Final[dict[int, str]] = {api: api.name.title().replace("_", "") for api in Api}
"""Kafka's name of each API."""


SHARE_STATE_APIS: Final = frozenset(
    {
        Api.INITIALIZE_SHARE_GROUP_STATE,
        Api.READ_SHARE_GROUP_STATE,
        Api.WRITE_SHARE_GROUP_STATE,
        Api.DELETE_SHARE_GROUP_STATE,
        Api.READ_SHARE_GROUP_STATE_SUMMARY,
    }
)
"""APIs by which brokers keep the states of share groups."""


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions of one API; both ends are included."""

    min: int
    max: int
    advertised_min: int | None = None
    """The minimum in the ApiVersions response, if it is not `min`."""
    hidden: bool = False
    """For brokers among themselves: the ApiVersions response omits it."""

    def __contains__(self, version: int) -> bool:
        """Return True if a version is supported."""
        return self.min <= version <= self.max


APIS: Final[dict[Api, Versions]] = {
    Api.PRODUCE: Versions(3, 13, advertised_min=0),
    Api.FETCH: Versions(4, 18),
    Api.LIST_OFFSETS: Versions(1, 11),
    Api.METADATA: Versions(0, 13),
    Api.OFFSET_COMMIT: Versions(2, 10),
    Api.OFFSET_FETCH: Versions(1, 10),
    Api.FIND_COORDINATOR: Versions(0, 6),
    Api.JOIN_GROUP: Versions(0, 9),
    Api.HEARTBEAT: Versions(0, 4),
    Api.LEAVE_GROUP: Versions(0, 5),
    Api.SYNC_GROUP: Versions(0, 5),
    Api.DESCRIBE_GROUPS: Versions(0, 6),
    Api.LIST_GROUPS: Versions(0, 5),
    Api.SASL_HANDSHAKE: Versions(0, 1),
    Api.API_VERSIONS: Versions(0, 5),
    Api.CREATE_TOPICS: Versions(2, 7),
    Api.DELETE_TOPICS: Versions(1, 6),
    Api.DELETE_RECORDS: Versions(0, 2),
    Api.INIT_PRODUCER_ID: Versions(0, 5),
    Api.OFFSET_FOR_LEADER_EPOCH: Versions(2, 4),
    Api.ADD_PARTITIONS_TO_TXN: Versions(0, 5),
    Api.ADD_OFFSETS_TO_TXN: Versions(0, 4),
    Api.END_TXN: Versions(0, 5),
    Api.WRITE_TXN_MARKERS: Versions(1, 2),
    Api.TXN_OFFSET_COMMIT: Versions(0, 6),
    Api.DESCRIBE_ACLS: Versions(1, 3),
    Api.CREATE_ACLS: Versions(1, 3),
    Api.DELETE_ACLS: Versions(1, 3),
    Api.DESCRIBE_CONFIGS: Versions(1, 4),
    Api.ALTER_CONFIGS: Versions(0, 2),
    Api.ALTER_REPLICA_LOG_DIRS: Versions(1, 2),
    Api.DESCRIBE_LOG_DIRS: Versions(1, 5),
    Api.SASL_AUTHENTICATE: Versions(0, 2),
    Api.CREATE_PARTITIONS: Versions(0, 3),
    Api.CREATE_DELEGATION_TOKEN: Versions(1, 3),
    Api.RENEW_DELEGATION_TOKEN: Versions(1, 2),
    Api.EXPIRE_DELEGATION_TOKEN: Versions(1, 2),
    Api.DESCRIBE_DELEGATION_TOKEN: Versions(1, 3),
    Api.DELETE_GROUPS: Versions(0, 3),
    Api.ELECT_LEADERS: Versions(0, 2),
    Api.INCREMENTAL_ALTER_CONFIGS: Versions(0, 1),
    Api.ALTER_PARTITION_REASSIGNMENTS: Versions(0, 1),
    Api.LIST_PARTITION_REASSIGNMENTS: Versions(0, 0),
    Api.OFFSET_DELETE: Versions(0, 0),
    Api.DESCRIBE_CLIENT_QUOTAS: Versions(0, 1),
    Api.ALTER_CLIENT_QUOTAS: Versions(0, 1),
    Api.DESCRIBE_USER_SCRAM_CREDENTIALS: Versions(0, 0),
    Api.ALTER_USER_SCRAM_CREDENTIALS: Versions(0, 0),
    Api.DESCRIBE_QUORUM: Versions(0, 2),
    Api.UPDATE_FEATURES: Versions(0, 2),
    Api.DESCRIBE_CLUSTER: Versions(0, 2),
    Api.DESCRIBE_PRODUCERS: Versions(0, 0),
    Api.BROKER_HEARTBEAT: Versions(0, 1, hidden=True),
    Api.DESCRIBE_TRANSACTIONS: Versions(0, 0),
    Api.LIST_TRANSACTIONS: Versions(0, 2),
    Api.CONSUMER_GROUP_HEARTBEAT: Versions(0, 1),
    Api.CONSUMER_GROUP_DESCRIBE: Versions(0, 1),
    Api.GET_TELEMETRY_SUBSCRIPTIONS: Versions(0, 0),
    Api.PUSH_TELEMETRY: Versions(0, 0),
    Api.LIST_CONFIG_RESOURCES: Versions(0, 1),
    Api.DESCRIBE_TOPIC_PARTITIONS: Versions(0, 0),
    Api.SHARE_GROUP_HEARTBEAT: Versions(1, 1),
    Api.SHARE_GROUP_DESCRIBE: Versions(1, 1),
    Api.SHARE_FETCH: Versions(1, 2),
    Api.SHARE_ACKNOWLEDGE: Versions(1, 2),
    Api.INITIALIZE_SHARE_GROUP_STATE: Versions(0, 0, hidden=True),
    Api.READ_SHARE_GROUP_STATE: Versions(0, 0, hidden=True),
    Api.WRITE_SHARE_GROUP_STATE: Versions(0, 1, hidden=True),
    Api.DELETE_SHARE_GROUP_STATE: Versions(0, 0, hidden=True),
    Api.READ_SHARE_GROUP_STATE_SUMMARY: Versions(0, 1, hidden=True),
    Api.DESCRIBE_SHARE_GROUP_OFFSETS: Versions(0, 1),
    Api.ALTER_SHARE_GROUP_OFFSETS: Versions(0, 0),
    Api.DELETE_SHARE_GROUP_OFFSETS: Versions(0, 0),
}
"""Every supported API."""


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature that clients use when every broker has it."""

    name: str
    level: int
    """The finalized level; 1 up to this are supported."""


FEATURES: Final = (
    Feature("group.version", 1),
    Feature("share.version", 2),
    Feature("transaction.version", 2),
)
"""Source: KIP-584; KIP-848 for `group.version`, KIP-890 for `transaction.version`, KIP-932 and
KIP-1191 for `share.version`."""


def advertised() -> list[tuple[int, int, int]]:
    """Return (key, lowest version, highest version) for the ApiVersions response, by key."""
    return [
        (int(api), v.min if v.advertised_min is None else v.advertised_min, v.max)
        for api, v in sorted(APIS.items())
        if not v.hidden
    ]
