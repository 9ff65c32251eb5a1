"""What handlers about groups have in common: who asks, and which code an error of theirs has."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.answering import code_of
from sparklog.broker.request import RequestContext
from sparklog.coordinator.group_messages import MemberIdentity
from sparklog.core.errors import RecordTooLarge, SparklogError

GROUP_OPERATIONS: Final = 0b1_0100_1000
"""Read, delete and describe: everybody may do it."""
_MILLISECOND: Final = timedelta(milliseconds=1)


def milliseconds(span: timedelta) -> int:
    """Return a span of time as a message carries it."""
    return span // _MILLISECOND


def member_of(asked: Any) -> MemberIdentity:
    """Return who a request, or a part of one, says it is from."""
    return MemberIdentity(asked.member_id, getattr(asked, "group_instance_id", None))


def host_of(context: RequestContext) -> str:
    """Return a client's host as Kafka stores it."""
    return f"/{context.client_host}"


def commit_code(error: SparklogError) -> ErrorCode:
    """Return the code for offsets that were not committed."""
    if isinstance(error, RecordTooLarge):
        return ErrorCode.invalid_commit_offset_size
    return code_of(error)
