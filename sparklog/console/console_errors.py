"""Problems of the console: each error as an HTTP status, a title and words for people."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Final

from sparklog.core.errors import (
    ClusterAuthorizationFailed,
    DataCorrupt,
    GroupAuthorizationFailed,
    GroupIdNotFound,
    InvalidRequest,
    NotServing,
    OffsetOutOfRange,
    OutcomeUnknown,
    ResourceNotFound,
    SaslAuthenticationFailed,
    SparklogError,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
    Unavailable,
    UnknownTopicOrPartition,
)

logger = logging.getLogger(__name__)

MESSAGE_MAX: Final = 2000


class LoginNeeded(Exception):
    """The request has no session."""


class ForbiddenChange(Exception):
    """The user, or the site that sent the request, may not do this."""


@dataclass(frozen=True, slots=True)
class ConsoleProblem:
    """An error for people."""

    status: int
    title: str
    message: str
    retry: bool = False
    """True if loading the page again may help."""


_KINDS: Final[tuple[tuple[type[BaseException], int, str], ...]] = (
    (LoginNeeded, 401, "Log in first"),
    (ForbiddenChange, 403, "Not allowed"),
    (TopicAuthorizationFailed, 403, "Not allowed"),
    (GroupAuthorizationFailed, 403, "Not allowed"),
    (ClusterAuthorizationFailed, 403, "Not allowed"),
    (TransactionalIdAuthorizationFailed, 403, "Not allowed"),
    (SaslAuthenticationFailed, 403, "The brokers reject the login"),
    (UnknownTopicOrPartition, 404, "Not here"),
    (GroupIdNotFound, 404, "Not here"),
    (ResourceNotFound, 404, "Not here"),
    (OffsetOutOfRange, 404, "No such offset"),
    (InvalidRequest, 400, "This cannot be done"),
    (NotServing, 409, "Brokers lead this topic"),
    (OutcomeUnknown, 504, "The outcome is not known"),
    (Unavailable, 503, "No answer"),
    (DataCorrupt, 500, "Damaged data"),
)
_RETRIES: Final = frozenset({503, 504})


def problem_of(error: BaseException) -> ConsoleProblem:
    """Return an error's status, title and words; an unknown one is logged in full."""
    if isinstance(error, TimeoutError):
        return ConsoleProblem(
            504, "No answer in time",
            "The store or the brokers did not answer in time. Nothing here is lost; try again, "
            "or look whether they run.", retry=True,
        )  # fmt: skip
    for kind, status, title in _KINDS:
        if isinstance(error, kind):
            words = str(error)[:MESSAGE_MAX] or title
            return ConsoleProblem(status, title, words, retry=status in _RETRIES)
    if isinstance(error, SparklogError | OSError):
        return ConsoleProblem(500, "This failed", str(error)[:MESSAGE_MAX])
    logger.error("a page failed", exc_info=error)
    return ConsoleProblem(500, "The console failed", "This is a fault of the console; see its log.")
