"""Converts a broker's error code to one of our errors.

The class determines the caller's next step, so codes with the same next step share a class. A write
without an acknowledgement is `OutcomeUnknown`: it may be in the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparklog.core.errors import SparklogError


def of_code(code: int, message: str | None, doing: str, **variables: Any) -> SparklogError:
    """Return the error for a broker's error code; `message` is the broker's own, if it sent one."""
    from sparklog.client.error_kinds import kind_of  # noqa: PLC0415 - loads Kafka's protocol

    try:
        kind, name = kind_of(code)
    except ValueError:
        kind, name = SparklogError, str(code)
        words = message or "the broker answered with an error code of a newer protocol"
    else:
        words = message or name.replace("_", " ")
    return kind(error_text(doing, words, name.upper(), variables))


def error_text(doing: str, words: str, name: str, variables: Mapping[str, Any]) -> str:
    """Return a message: what failed and why, with the variables at its end."""
    known = "".join(f" {key}={value}" for key, value in variables.items() if value is not None)
    sentence = " ".join(words.split()).rstrip(".")
    return f"{doing}: {sentence}. error={name}{known}"
