"""RegistryRefused: an answer of the registry that is an error, with Confluent's error code.

Source: Confluent's API reference; the constants have the names of its error codes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sparklog.core.errors import InvalidRequest

SUBJECT_NOT_FOUND: Final = 40401
VERSION_NOT_FOUND: Final = 40402
SCHEMA_NOT_FOUND: Final = 40403
SUBJECT_SOFT_DELETED: Final = 40404
SUBJECT_NOT_SOFT_DELETED: Final = 40405
VERSION_SOFT_DELETED: Final = 40406
VERSION_NOT_SOFT_DELETED: Final = 40407
LEVEL_NOT_CONFIGURED: Final = 40408
MODE_NOT_CONFIGURED: Final = 40409
INCOMPATIBLE_SCHEMA: Final = 409
UNPROCESSABLE: Final = 422
INVALID_SCHEMA: Final = 42201
INVALID_VERSION: Final = 42202
INVALID_LEVEL: Final = 42203
INVALID_MODE: Final = 42204
OPERATION_NOT_PERMITTED: Final = 42205
REFERENCE_EXISTS: Final = 42206
ID_DOES_NOT_MATCH: Final = 42207
INVALID_SUBJECT: Final = 42208
SCHEMA_TOO_LARGE: Final = 42209
STORE_ERROR: Final = 50001
_STATUS_DIGITS: Final = 100
_CODES: Final = 1000


class RegistryRefused(InvalidRequest):
    """The registry does not accept a request, or has not what it asks for."""

    def __init__(self, code: int, message: str, reasons: Sequence[str] = ()) -> None:
        """Set Confluent's error code, the message, and the reasons of an incompatibility."""
        super().__init__(message)
        self.code = code
        self.reasons = tuple(reasons)

    @property
    def status(self) -> int:
        """Return the status of the HTTP response: the first three digits of the code."""
        return self.code if self.code < _CODES else self.code // _STATUS_DIGITS


def invalid_schema(why: str) -> RegistryRefused:
    """Return the error for a schema that is not valid."""
    return RegistryRefused(INVALID_SCHEMA, f"Invalid schema: {why}")
