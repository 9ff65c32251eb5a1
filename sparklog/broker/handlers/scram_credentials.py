"""DescribeUserScramCredentials (50) and AlterUserScramCredentials (51). Source: KIP-554.

A client sends the salted password of a user. The broker derives the keys from it, appends these to
the metadata log and forgets it. No message, error or log line has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from sparklog.broker.handlers.request_parts import decide_apart, refusing
from sparklog.broker.handlers.responses import NO_THROTTLE, error_fields
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.request import RequestContext
from sparklog.cluster.metadata.access_changes import (
    USER_CHARS_MAX,
    USERS_MAX,
    UserChanges,
    check_user_name,
)
from sparklog.cluster.metadata.records import Record
from sparklog.core.errors import (
    DuplicateResource,
    InvalidRequest,
    ResourceNotFound,
    SparklogError,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
)
from sparklog.protocol.messages.builder import ResponseBuilder
from sparklog.security.sasl.credentials import (
    ScramCredentials,
    ScramMechanism,
    check_iterations,
    credential_of,
)

PART_BYTES_MAX: Final = 1024
"""A salt or a salted password; Kafka's tools send 26 and at most 64 bytes."""

Decision = Callable[[UserChanges], list[Record]]


async def describe(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Return mechanisms and iterations of some users, or of all (50)."""
    answer = ResponseBuilder.to(request)
    known = node.metadata.image.scram_credentials
    given = Counter(user.name for user in request.users or ())
    if not given:
        given = Counter(known.keys())
    return answer.response(
        throttle_time=NO_THROTTLE,
        results=tuple(_described(answer, known, name, times) for name, times in given.items()),
        **error_fields(None),
    )


def _described(answer: ResponseBuilder, known: ScramCredentials, name: str, times: int) -> Any:
    error: SparklogError | None = None
    if times > 1:
        error = DuplicateResource("a request describes a user once.")
    elif name not in known:
        error = ResourceNotFound(
            f"the user has no SCRAM credentials. user={name[:USER_CHARS_MAX]!r}"
        )
    infos = tuple(
        answer.entity("CredentialInfo", mechanism=int(mechanism), iterations=one.iterations)
        for mechanism, one in sorted(known.get(name, {}).items())
        if error is None
    )
    return answer.entity(
        "DescribeUserScramCredentialsResult",
        user=name,
        credential_infos=infos,
        **error_fields(error),
    )


async def alter(node: BrokerNode, request: Any, context: RequestContext) -> Any:
    """Set and delete credentials, one for each user (51)."""
    answer = ResponseBuilder.to(request)
    changes = [*request.deletions, *request.upsertions]
    times = Counter(change.name for change in changes)
    decisions: dict[str, Decision] = {}
    for number, change in enumerate(changes):
        if times[change.name] > 1:
            twice = DuplicateResource("a request alters a user once.")
            decisions[change.name] = refusing(twice)
        else:
            is_deletion = number < len(request.deletions)
            decisions[change.name] = _decision(change, is_deletion=is_deletion)
    if len(changes) > USERS_MAX:
        error = InvalidRequest(
            f"the request alters too many users. given={len(changes)} most={USERS_MAX}"
        )
        decisions = {name: refusing(error) for name in times}
    decided = await decide_apart(node.metadata, decisions, UserChanges)
    results = tuple(
        answer.entity(
            "AlterUserScramCredentialsResult", user=name, **error_fields(decided.refused.get(name))
        )
        for name in times
    )
    return answer.response(throttle_time=NO_THROTTLE, results=results)


def _decision(change: Any, *, is_deletion: bool) -> Decision:
    try:
        check_user_name(change.name)
        mechanism = _mechanism(change.mechanism)
        if is_deletion:
            return partial(UserChanges.delete, name=change.name, mechanism=mechanism)
        check_iterations(change.iterations)
        for part in (change.salt, change.salted_password):
            if not 0 < len(part) <= PART_BYTES_MAX:
                raise UnacceptableCredential(
                    f"salt and salted password have 1 to {PART_BYTES_MAX} bytes. "
                    f"user={change.name!r}"
                )
    except SparklogError as error:
        return refusing(error)
    credential = credential_of(
        mechanism, bytes(change.salt), bytes(change.salted_password), change.iterations
    )
    return partial(UserChanges.set, name=change.name, mechanism=mechanism, credential=credential)


def _mechanism(number: int) -> ScramMechanism:
    try:
        return ScramMechanism(number)
    except ValueError:
        raise UnsupportedSaslMechanism(f"no such SCRAM mechanism. mechanism={number}") from None
