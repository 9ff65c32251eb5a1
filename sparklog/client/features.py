"""Levels of features: reads what brokers support and have finalized, and finalizes a level.

Source: KIP-584.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from sparklog.client.connections import BrokerConnections, RequestDraft
from sparklog.client.errors import of_code
from sparklog.core.errors import InvalidRequest
from sparklog.protocol.api_keys import Api

DESCRIBE_VERSIONS: Final = (3, 4)
FINALIZE_VERSIONS: Final = (1, 2)
UPGRADE: Final = 1
CLIENT_NAME: Final = "sparklog"


@dataclass(frozen=True, slots=True)
class FeatureLevels:
    """The levels of one feature that a broker supports, and the finalized one."""

    name: str
    lowest: int
    highest: int
    finalized: int | None
    """None if the cluster has finalized none."""


def describe_features(brokers: BrokerConnections) -> list[FeatureLevels]:
    """Return the features of the first broker that answers, by name.

    Raises:
        Unavailable: no broker responds. InvalidRequest: the brokers have no features.
    """

    def draft(of: RequestDraft) -> Any:
        return of.request(client_software_name=CLIENT_NAME, client_software_version="0")

    answer = brokers.ask(Api.API_VERSIONS, *DESCRIBE_VERSIONS, draft)
    finalized = {one.name: int(one.max_version_level) for one in answer.finalized_features}
    return sorted(
        (
            FeatureLevels(
                one.name, int(one.min_version), int(one.max_version), finalized.get(one.name)
            )
            for one in answer.supported_features
        ),
        key=lambda levels: levels.name,
    )


def finalize_feature(brokers: BrokerConnections, name: str, level: int) -> None:
    """Finalize the level of a feature, which cannot be undone.

    Raises:
        InvalidRequest: the cluster cannot have the level now; the message says why.
        Unavailable: no broker responds. OutcomeUnknown: look at the levels again.
    """

    def draft(of: RequestDraft) -> Any:
        update = of.part(
            "FeatureUpdateKey", feature=name, max_version_level=level, upgrade_type=UPGRADE
        )
        return of.request(
            timeout=timedelta(seconds=brokers.timeout_s),
            feature_updates=(update,),
            validate_only=False,
        )

    answer = brokers.change(Api.UPDATE_FEATURES, *FINALIZE_VERSIONS, draft)
    if answer.error_code != 0:
        doing = "the level was not finalized"
        raise InvalidRequest(str(of_code(answer.error_code, answer.error_message, doing)))
