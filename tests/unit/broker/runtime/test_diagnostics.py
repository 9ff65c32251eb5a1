"""Log levels by package."""

from __future__ import annotations

import pytest

from sparklog.broker.runtime.diagnostics import parse_log_levels
from sparklog.core.errors import InvalidConfig


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("", {}),
        ("debug", {"": "DEBUG"}),
        ("broker.produce:DEBUG", {"sparklog.broker.produce": "DEBUG"}),
        ("sparklog.log:WARNING", {"sparklog.log": "WARNING"}),
        ("sparklog:ERROR", {"sparklog": "ERROR"}),
        (" INFO , log:DEBUG,", {"": "INFO", "sparklog.log": "DEBUG"}),
    ],
)
def test_log_levels_are_read_by_package(text: str, levels: dict[str, str]) -> None:
    assert parse_log_levels(text) == levels


@pytest.mark.parametrize("text", ["loud", ":DEBUG", "log:", "log:LOUD"])
def test_log_levels_are_rejected_when_an_entry_has_no_level(text: str) -> None:
    with pytest.raises(InvalidConfig, match="SPARKLOG_LOG takes LEVEL or PACKAGE:LEVEL"):
        parse_log_levels(text)
