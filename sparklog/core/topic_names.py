"""Rules for topic names, and the names of the cluster's own topics.

The rules are Kafka's, so a name valid here is valid there. A legal name is also safe as a folder of
the object store: no slash, no space, no tilde.
Source: Kafka `org.apache.kafka.common.internals.Topic`.
"""

from __future__ import annotations

import re
from typing import Final

from sparklog.core.errors import InvalidTopic

TOPIC_NAME_LENGTH_MAX = 249
"""Kafka's limit: with a partition number behind it the name still fits a 255-byte file name."""

METADATA_TOPIC: Final = "__cluster_metadata"
"""The cluster's metadata: a log of its own, which is not a topic in the metadata itself."""
JOBS_TOPIC: Final = "__sparklog_jobs"
"""The history of upkeep jobs. Its writers need the storage; see decision 49."""
AUDIT_TOPIC: Final = "__sparklog_audit"
"""Decisions of brokers' authorizers. Brokers write it, and only an ACL that names it, or a prefix
of it, lets others read it; see decision 62."""
SCHEMAS_TOPIC: Final = "_schemas"
"""The state of schema registries, in Confluent's format. An ordinary topic to clients."""
LISTED_AS_INTERNAL: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", JOBS_TOPIC, AUDIT_TOPIC}
)
"""Kafka's internal topics and ours. Readers of all topics, or of a pattern, leave them out."""

CLOSED_TOPICS: Final = LISTED_AS_INTERNAL | {METADATA_TOPIC}
"""Topics with the cluster's own state.

Clients read them and alter their settings. They do not append, delete records, create, delete or
repartition.
"""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Reject a topic name that Kafka would reject.

    Raises:
        InvalidTopic: choose another name.
    """
    if not name:
        raise InvalidTopic("a topic name has at least one character.")
    if name in {".", ".."}:
        raise InvalidTopic(
            f"a topic cannot be called '.' or '..': choose another name. topic={name}"
        )
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        raise InvalidTopic(
            f"a topic name has at most {TOPIC_NAME_LENGTH_MAX} characters: choose a shorter one. "
            f"length={len(name)} topic={name}"
        )
    if _LEGAL.fullmatch(name) is None:
        raise InvalidTopic(
            "a topic name holds ASCII letters, digits, '.', '_' and '-' only: "
            f"choose another name. topic={name!r}"
        )


def check_not_closed(name: str, doing: str) -> None:
    """Reject a client's change of a topic that holds the cluster's own state.

    Args:
        name: the topic's name.
        doing: the client's request, to complete "only the cluster itself can …".

    Raises:
        InvalidTopic: choose another topic. Settings can be altered, as in Kafka.
    """
    if name in CLOSED_TOPICS:
        raise InvalidTopic(
            f"this topic holds the cluster's own state: only the cluster itself can {doing}. "
            f"topic={name}"
        )
