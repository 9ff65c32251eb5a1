"""UpdateFeatures (57): which levels of features are in force. Source: KIP-584.

Levels are part of the brokers' version, so the only update that succeeds changes nothing.
"""

from __future__ import annotations

from typing import Any

from sparklog.broker.handlers.answering import NO_THROTTLE, error_fields
from sparklog.broker.handlers.node import HandlerNode
from sparklog.broker.request import RequestContext
from sparklog.core.errors import InvalidRequest, SparklogError
from sparklog.protocol.api import FEATURES
from sparklog.protocol.building import Answer


class InvalidUpdateVersion(InvalidRequest):
    """A feature cannot have this level here."""

    kafka_code = 95


async def handle(node: HandlerNode, request: Any, context: RequestContext) -> Any:
    """Answer for every feature; from version 2 on, with the first error alone."""
    answer = Answer.to(request)
    outcomes = [(one.feature, _refusal(one)) for one in request.feature_updates]
    failed = next((error for _, error in outcomes if error is not None), None)
    return answer.response(
        throttle_time=NO_THROTTLE,
        **error_fields(failed),
        results=tuple(
            answer.entity("UpdatableFeatureResult", feature=name, **error_fields(error))
            for name, error in outcomes
        )
        if answer.version < WHOLE_SINCE
        else (),
    )


WHOLE_SINCE = 2
"""The first version without a result of each feature."""


def _refusal(update: Any) -> SparklogError | None:
    levels = {one.name: one.level for one in FEATURES}
    level = int(update.max_version_level)
    if levels.get(update.feature, 0) == level:
        return None
    return InvalidUpdateVersion(
        "the level of a feature is part of the brokers' version and cannot be changed. "
        f"feature={update.feature!r} level={level} in_force={levels.get(update.feature, 0)}"
    )
