"""Times and durations in the format of Kafka's tools: ISO 8601."""

from __future__ import annotations

import argparse
import re
from datetime import UTC, datetime

_DURATION = re.compile(
    r"(-)?P(?:(-?\d+)D)?(?:T(?:(-?\d+)H)?(?:(-?\d+)M)?(?:(-?\d+)(?:\.(\d{1,9}))?S)?)?",
    re.IGNORECASE | re.ASCII,
)


def datetime_ms(text: str) -> int:
    """Return ms since 1970 of `2026-01-31T23:59:59.000`, in UTC unless the text has a zone.

    For `type=`.
    """
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"not a time such as 2026-01-31T23:59:59.000: {text!r}"
        ) from error
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def duration_ms(text: str) -> int:
    """Return ms of a duration such as `P1DT2H30M` or `PT0.5S`, for `type=`."""
    match = _DURATION.fullmatch(text)
    if match is None or text[-1] in "PpTt":
        raise argparse.ArgumentTypeError(f"not a duration such as P1DT2H30M or PT30S: {text!r}")
    sign, days, hours, minutes, seconds, fraction = match.groups()
    whole = ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)) * 60
    part_ms = int(f"{fraction or 0:<03}"[:3])
    if (seconds or "").startswith("-"):
        part_ms = -part_ms
    total_ms = (whole + int(seconds or 0)) * 1000 + part_ms
    return -total_ms if sign else total_ms
