"""Levels of features: which brokers may start, and which level may be finalized. Pure.

The feature `sparklog.version` has a level for each change that an older broker would misread. At
level 1 brokers state no level when they register. From level 2 on each broker states its level, and
starts only if that is at least the finalized one. Both levels store the same.

FEATURES-1: The finalized level never falls, and no broker that serves has a lower one.
    Registration and finalization are both decided on the newest image, so neither can miss the
    other.
FEATURES-2: Nothing of a level is used before it is finalized. Until then a broker of an earlier
    release can take the place of a newer one.

Source: KIP-584. Decision 74.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import (
    FIRST_LEVEL,
    SPARKLOG_VERSION,
    FeatureLevelRecord,
    Record,
)
from sparklog.core.errors import InvalidRequest, SparklogError
from sparklog.protocol.api_keys import FEATURES

LEVEL: Final = 2
"""The highest level of `sparklog.version` that this release supports; it supports all below."""


class InvalidUpdateVersion(InvalidRequest):
    """A feature cannot have this level here."""

    kafka_code = 95


class UnsupportedLevel(InvalidRequest):
    """The cluster's finalized level is higher than this release knows: start a newer one."""

    kafka_code = 35


def level_of(image: MetadataImage) -> int:
    """Return the finalized level of `sparklog.version`."""
    return image.features.get(SPARKLOG_VERSION, FIRST_LEVEL)


def check_may_start(image: MetadataImage) -> None:
    """Reject the start of a broker of this release in a cluster that needs a newer one.

    Raises:
        UnsupportedLevel: a feature is unknown here, or finalized above this release's level.
    """
    for name, level in image.features.items():
        known = LEVEL if name == SPARKLOG_VERSION else 0
        if level > known:
            raise UnsupportedLevel(
                "this cluster has finalized a feature level that this release does not know: start "
                f"a newer release. feature={name!r} finalized={level} supported={known}"
            )


def finalize(
    image: MetadataImage, levels: Mapping[str, int]
) -> tuple[list[Record], dict[str, SparklogError | None]]:
    """Return the records that finalize levels, none if one is rejected, and each one's error."""
    errors = {name: _error(image, name, level) for name, level in levels.items()}
    if any(errors.values()):
        return [], errors
    wanted = levels.get(SPARKLOG_VERSION, FIRST_LEVEL)
    rises = wanted > level_of(image)
    return [FeatureLevelRecord(SPARKLOG_VERSION, wanted)] if rises else [], errors


def _error(image: MetadataImage, name: str, level: int) -> SparklogError | None:
    if name != SPARKLOG_VERSION:
        return _error_of_fixed(name, level)
    now = level_of(image)
    facts = f"feature={name!r} level={level} finalized={now}"
    if level < now:
        return InvalidUpdateVersion(f"a finalized level never falls. {facts}")
    if level > LEVEL:
        return InvalidUpdateVersion(
            f"this release does not know the level: start a newer one. {facts} supported={LEVEL}"
        )
    behind = [broker.broker_id for broker in image.live_brokers() if broker.level < level]
    if behind and level > now:
        return InvalidUpdateVersion(
            "brokers of an earlier release still serve: replace them first. "
            f"{facts} brokers={','.join(map(str, behind))}"
        )
    return None


def _error_of_fixed(name: str, level: int) -> SparklogError | None:
    levels = {one.name: one.level for one in FEATURES}
    if levels.get(name, 0) == level:
        return None
    return InvalidUpdateVersion(
        "the level of this feature is part of the brokers' version and cannot be changed. "
        f"feature={name!r} level={level} in_force={levels.get(name, 0)}"
    )
