"""Which topic names are legal: Kafka's rules, so that a name valid here is valid there.

A legal name is also safe as a folder of the object store: no slash, no space, no tilde.
Source: Kafka `org.apache.kafka.common.internals.Topic`.
"""

from __future__ import annotations

import re
from typing import Final

from sparklog.core.errors import InvalidTopic

TOPIC_NAME_LENGTH_MAX = 249
"""Kafka's bound: with a partition number behind it the name still fits a 255-byte file name."""

JOBS_TOPIC = "__sparklog_jobs"
"""The history of upkeep jobs, which anybody may write."""
TOLD_AS_INTERNAL: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "__share_group_state", JOBS_TOPIC}
)
"""Topics that whoever reads all of them, or those of a pattern, leaves out: Kafka's and ours."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Refuse a topic name that Kafka would refuse.

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
