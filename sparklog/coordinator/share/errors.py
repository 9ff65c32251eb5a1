"""Errors of share groups that their clients act on.

Source: KIP-932.
"""

from __future__ import annotations

from sparklog.core.errors import GroupError


class InvalidRecordState(GroupError):
    """A record is not in a state in which the member may acknowledge it."""

    kafka_code = 121


class ShareSessionNotFound(GroupError):
    """The broker has no such share session: open one, and acquire the records again."""

    kafka_code = 122


class InvalidShareSessionEpoch(GroupError):
    """A request of the share session was lost: open a new session."""

    kafka_code = 123


class FencedStateEpoch(GroupError):
    """The share group's state was initialized or altered since: read it again."""

    kafka_code = 124


class ShareSessionLimitReached(GroupError):
    """The broker has as many share sessions as `group.share.max.share.sessions` allows."""

    kafka_code = 133


class NonEmptyGroup(GroupError):
    """The group has members: stop them first."""

    kafka_code = 68
