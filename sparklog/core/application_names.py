"""Names of applications that serve a root together, and the highest id of a broker. Pure."""

from __future__ import annotations

import re
from typing import Final

from sparklog.core.errors import InvalidRequest

BROKER_ID_MAX: Final = 2**31 - 1
"""Kafka's: ids are numbers of 32 bits."""
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_application(name: str) -> None:
    """Reject a name that is no plain word.

    Raises:
        InvalidRequest: it is empty, too long, or has other characters.
    """
    if NAME.fullmatch(name) is None:
        raise InvalidRequest(
            "the name of an application has up to 100 letters, digits, '.', '_' and '-', and "
            f"begins with a letter or digit. application={name!r}"
        )
