"""A request of an API, the rights that it needs, and the codes that a stranger gets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sparklog.protocol.api_keys import Api
from sparklog.security.acls import AclOperation as Do
from sparklog.security.acls import ResourceType

SOON = timedelta(seconds=5)
TOPIC, GROUP, CLUSTER, TRANSACTION, TOKEN = 29, 30, 31, 53, 65
Grant = tuple[Do, ResourceType, str]


@dataclass(frozen=True, slots=True)
class AccessCase:
    """A request, and what it needs."""

    request: Any
    stranger: list[int]
    """Codes of the response to a client without any right, in the order of the fields."""
    grants: tuple[Grant, ...] = ()
    """The rights that are enough."""

    @property
    def name(self) -> str:
        """Return the API and the version, as a name of the test."""
        return f"{Api(self.request.__api_key__).name}-v{self.request.__version__}"


def on_topic(*operations: Do) -> tuple[Grant, ...]:
    return tuple((one, ResourceType.TOPIC, "t") for one in operations)


def on_group(*operations: Do) -> tuple[Grant, ...]:
    return tuple((one, ResourceType.GROUP, "g") for one in operations)


def on_cluster(*operations: Do) -> tuple[Grant, ...]:
    return tuple((one, ResourceType.CLUSTER, "kafka-cluster") for one in operations)


def on_transaction(*operations: Do) -> tuple[Grant, ...]:
    return tuple((one, ResourceType.TRANSACTIONAL_ID, "x") for one in operations)


PART = {"partition_index": 0}
TOPIC_0 = [{"name": "t", "partitions": [PART]}]
CONFIG_TYPES = [(2, "t"), (32, "g"), (4, "1")]
CONFIG_CODES = [TOPIC, GROUP, CLUSTER]


def config_grants(operation: Do) -> tuple[Grant, ...]:
    return (*on_topic(operation), *on_group(operation), *on_cluster(operation))


def config_resources(**more: Any) -> list[dict[str, Any]]:
    return [{"resource_type": kind, "resource_name": name, **more} for kind, name in CONFIG_TYPES]
