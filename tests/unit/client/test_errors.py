from __future__ import annotations

import confluent_kafka
import pytest
from kio.schema.errors import ErrorCode

from sparklog.client.errors import of_code
from sparklog.client.librdkafka_errors import of_exception, of_kafka
from sparklog.core import errors
from sparklog.core.errors import SparklogError

UNKNOWN_OUTCOME = {
    ErrorCode.request_timed_out,
    ErrorCode.network_exception,
    ErrorCode.not_enough_replicas_after_append,
}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1, errors.OffsetOutOfRange),
        (3, errors.UnknownTopicOrPartition),
        (6, errors.NotServing),
        (7, errors.OutcomeUnknown),
        (10, errors.RecordTooLarge),
        (19, errors.Unavailable),
        (20, errors.OutcomeUnknown),
        (36, errors.TopicAlreadyExists),
        (47, errors.Fenced),
        (87, errors.InvalidRequest),
    ],
)
def test_error_code_has_one_class_for_broker_and_library(
    code: int, kind: type[SparklogError]
) -> None:
    from_broker = of_code(code, "broken.", "not done", topic="t", skipped=None)
    name = ErrorCode(code).name.upper()
    assert type(from_broker) is kind
    assert str(from_broker) == f"not done: broken. error={name} topic=t"
    from_library = of_kafka(confluent_kafka.KafkaError(code), "not done", topic="t")
    assert type(from_library) is kind
    assert str(from_library).endswith(f"error={name} topic=t")


@pytest.mark.parametrize("code", [code for code in ErrorCode if code > 0])
def test_every_error_code_has_a_class_that_fits_retries(code: ErrorCode) -> None:
    error = of_code(code, None, "not done")
    assert code.name.replace("_", " ") in str(error)
    if error.retriable:
        assert code.retriable or isinstance(error, errors.NotServing | errors.Unavailable)
    if isinstance(error, errors.OutcomeUnknown):
        assert code in UNKNOWN_OUTCOME


def test_unknown_error_code_is_reported_by_number() -> None:
    assert "error=9999" in str(of_code(9999, None, "not done"))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("_TRANSPORT", errors.Unavailable),
        ("_MSG_TIMED_OUT", errors.OutcomeUnknown),
        ("_UNKNOWN_PARTITION", errors.UnknownTopicOrPartition),
        ("_INVALID_ARG", errors.InvalidRequest),
        ("_FENCED", errors.Fenced),
        ("_STATE", SparklogError),
    ],
)
def test_library_errors_map_to_classes(name: str, kind: type[SparklogError]) -> None:
    raised = confluent_kafka.KafkaException(
        confluent_kafka.KafkaError(getattr(confluent_kafka.KafkaError, name))
    )
    error = of_exception(raised, "not done")
    assert type(error) is kind
    assert f"error={name.lstrip('_')}" in str(error)


def test_exception_without_an_error_keeps_its_message() -> None:
    assert "odd" in str(of_exception(confluent_kafka.KafkaException("odd"), "not done"))
