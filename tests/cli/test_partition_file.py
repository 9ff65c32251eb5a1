"""Files that name partitions: what is wrong with one is said in words of the file."""

from __future__ import annotations

import pytest

from sparklog.cli.commands.reassign_partitions import parse_assignment
from sparklog.core.errors import InvalidRequest


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("not JSON", "Expecting value"),
        ("[]", "partitions must be a list of objects"),
        ('{"partitions": 5}', "partitions must be a list of objects"),
        ('{"partitions": [5]}', "partitions must be a list of objects"),
        ('{"partitions": [{"topic": "t"}]}', "partition must be a whole number"),
        ('{"partitions": [{"topic": "t", "partition": 0, "replicas": 1}]}', "replicas are 1"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": null}]}',
            'log_dirs may only be "any"',
        ),
    ],
)
def test_invalid_file_is_rejected_with_its_fault(text: str, problem: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse_assignment(text)
    assert problem in str(refused.value)
    assert "Error(" not in str(refused.value)
