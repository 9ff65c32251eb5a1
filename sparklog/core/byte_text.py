"""Bytes in documents for people: text where they are UTF-8."""

from __future__ import annotations

import base64


def readable_bytes(data: bytes) -> str | dict[str, str]:
    """Return bytes for JSON: a string if they are UTF-8, else `{"base64": …}`."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}
