"""Levels of `sparklog.version`: which broker may start, and which level may be finalized."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparklog.cluster.metadata import snapshot
from sparklog.cluster.metadata.features import (
    LEVEL,
    UnsupportedLevel,
    check_may_start,
    finalize,
    level_of,
)
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import (
    FIRST_LEVEL,
    SPARKLOG_VERSION,
    BrokerRegistrationChangeRecord,
    ClusterRecord,
    FeatureLevelRecord,
    Record,
    RegisterBrokerRecord,
)

CLUSTER = ClusterRecord("c" * 22, "5" * 32)


def image_of(*records: Record) -> MetadataImage:
    return MetadataImage().applied(records, len(records))


def broker(broker_id: int, level: int) -> Record:
    return RegisterBrokerRecord(broker_id, "a", "localhost", 9092, level=level)


def fenced(broker_id: int, epoch: int) -> Record:
    return BrokerRegistrationChangeRecord(broker_id, epoch, fenced=True)


def error_of(image: MetadataImage, level: int, name: str = SPARKLOG_VERSION) -> str:
    records, errors = finalize(image, {name: level})
    assert records == []
    return str(errors[name])


def test_a_cluster_begins_at_the_level_of_its_first_broker() -> None:
    assert level_of(image_of(CLUSTER)) == FIRST_LEVEL
    newest = replace(CLUSTER, level=LEVEL)
    assert level_of(image_of(newest)) == LEVEL
    # The same record for a cluster that only lacks a secret raises no level.
    assert level_of(image_of(ClusterRecord("c" * 22), newest)) == FIRST_LEVEL


def test_a_level_is_finalized_when_all_live_brokers_support_it() -> None:
    older = image_of(CLUSTER, broker(1, FIRST_LEVEL), broker(2, LEVEL))
    assert "replace them first" in error_of(older, LEVEL)
    assert error_of(older, LEVEL).endswith("brokers=1")
    one_gone = image_of(CLUSTER, broker(1, FIRST_LEVEL), broker(2, LEVEL), fenced(1, 1))
    records, errors = finalize(one_gone, {SPARKLOG_VERSION: LEVEL})
    assert (records, errors) == (
        [FeatureLevelRecord(SPARKLOG_VERSION, LEVEL)],
        {SPARKLOG_VERSION: None},
    )
    after = one_gone.applied(records, one_gone.end_offset + 1)
    assert level_of(after) == LEVEL
    assert finalize(after, {SPARKLOG_VERSION: LEVEL}) == ([], {SPARKLOG_VERSION: None})


def test_a_finalized_level_never_falls() -> None:
    image = image_of(replace(CLUSTER, level=LEVEL), broker(1, LEVEL))
    assert "never falls" in error_of(image, FIRST_LEVEL)
    assert "does not know the level" in error_of(image, LEVEL + 1)
    lower = image.applied([FeatureLevelRecord(SPARKLOG_VERSION, FIRST_LEVEL)], 3)
    assert level_of(lower) == LEVEL


def test_one_rejected_feature_rejects_all_of_a_request() -> None:
    image = image_of(CLUSTER, broker(1, LEVEL))
    records, errors = finalize(image, {SPARKLOG_VERSION: LEVEL, "group.version": 0})
    assert records == []
    assert errors[SPARKLOG_VERSION] is None
    assert "cannot be changed" in str(errors["group.version"])
    assert "cannot be changed" in error_of(image, 1, "tomorrow.version")


@pytest.mark.parametrize(
    ("feature", "level"), [(SPARKLOG_VERSION, LEVEL + 1), ("tomorrow.version", 2)]
)
def test_a_broker_below_a_finalized_level_may_not_start(feature: str, level: int) -> None:
    check_may_start(image_of(replace(CLUSTER, level=LEVEL)))
    with pytest.raises(UnsupportedLevel, match=f"finalized={level}"):
        check_may_start(image_of(CLUSTER, FeatureLevelRecord(feature, level)))


def test_snapshots_keep_levels_apart_from_the_rows_of_brokers() -> None:
    image = image_of(replace(CLUSTER, level=LEVEL), broker(1, LEVEL), broker(2, FIRST_LEVEL))
    document = snapshot.to_document(image)
    assert document["brokerLevels"] == [[1, LEVEL]]
    assert document["features"] == {SPARKLOG_VERSION: LEVEL}
    assert [len(row) for row in document["brokers"]] == [9, 9], "an earlier release reads them"
    assert snapshot.decode(snapshot.encode(image), image.end_offset) == image
