"""S3Connection's parts: the smaller model of S3, and the times in answers."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel, Shape
from botocore.utils import parse_timestamp

from sparklog.store.s3_connection import OPERATIONS, _instant, _ModelFiles, _ServiceModels

S3 = ("s3", "service-2")


def models() -> _ServiceModels:
    """Return models that no client has changed."""
    return _ServiceModels(file_loader=_ModelFiles())


def resolved(shape: Shape | None, seen: frozenset[str] = frozenset()) -> Any:
    """Return all that a shape means: the shapes that it names, whole."""
    if shape is None or shape.name in seen:
        return None
    seen |= {shape.name}
    parts = {**getattr(shape, "members", {}), "": getattr(shape, "member", None)}
    return (
        shape.name,
        shape.type_name,
        shape.serialization,
        shape.metadata,
        {name: resolved(part, seen) for name, part in parts.items()},
    )


def test_operations_of_the_smaller_model_are_those_of_the_library() -> None:
    whole = ServiceModel(Loader().load_service_model(*S3))
    smaller = ServiceModel(models().load_service_model(*S3))
    assert set(smaller.operation_names) == set(OPERATIONS) < set(whole.operation_names)
    assert len(smaller.shape_names) < len(whole.shape_names) / 4
    assert smaller.metadata == whole.metadata
    for name in OPERATIONS:
        small, large = smaller.operation_model(name), whole.operation_model(name)
        assert small.http == large.http
        assert resolved(small.input_shape) == resolved(large.input_shape)
        assert resolved(small.output_shape) == resolved(large.output_shape)
        assert [resolved(e) for e in small.error_shapes] == [
            resolved(e) for e in large.error_shapes
        ]


def test_models_of_other_services_are_whole() -> None:
    tokens = ("sts", "service-2")
    whole = Loader().load_service_model(*tokens)
    assert dict(models().load_service_model(*tokens)) == dict(whole)


@pytest.mark.parametrize(
    "text",
    [
        "2026-11-29T01:02:03.000Z",
        "2026-11-29T01:02:03.25Z",
        "2026-11-29T01:02:03Z",
        "20261129T010203Z",
        "Sun, 29 Nov 2026 01:02:03 GMT",
        "Sunday, 29-Nov-26 01:02:03 GMT",
        "2026-11-29T01:02:03+02:00",
        "1795914123",
        1795914123.5,
    ],
)
def test_times_of_answers_are_those_that_the_library_reads(text: str | float) -> None:
    assert _instant(text).timestamp() == parse_timestamp(text).timestamp()


def test_time_of_an_answer_has_a_zone() -> None:
    assert _instant("2026-11-29T01:02:03.000Z") == datetime(2026, 11, 29, 1, 2, 3, tzinfo=UTC)
    assert _instant("Sun, 29 Nov 2026 01:02:03 GMT").utcoffset() is not None


def test_text_that_is_no_time_is_an_error() -> None:
    for text in ("never", "neverZ", "never GMT"):
        with pytest.raises(ValueError, match="never"):
            _instant(text)
