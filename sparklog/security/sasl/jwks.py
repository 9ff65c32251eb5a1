"""The public keys of an OAuth provider: their parsing, and when to read them again.

The caller reads the document; this module decides when. A token with an unknown key id asks for
one early refresh, at most one in `EARLY_REFRESH_MS`, so that forged tokens cause no load.

Source: RFC 7517.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

from joserfc import jwk
from joserfc.errors import JoseError

from sparklog.core.backoff import Backoff
from sparklog.core.bounded_json import parse_json
from sparklog.core.errors import InvalidConfig

JWKS_BYTES_MAX: Final = 1024 * 1024
_KEYS_MAX: Final = 1000
_RSA_BITS_MIN: Final = 2048
EARLY_REFRESH_MS: Final = 10_000
_KEY_TYPES: Final = frozenset({"RSA", "EC", "OKP"})

Key = jwk.RSAKey | jwk.ECKey | jwk.OKPKey


def parse_jwks(document: bytes) -> dict[str, Key]:
    """Return the public signature keys of a key set by key id; `''` for a key without one.

    Keys of other types and uses, and RSA keys under 2048 bits, are skipped.

    Raises:
        InvalidConfig: not a key set, or one without a usable key.
    """
    try:
        parsed = parse_json(document, "JWKS", bytes_max=JWKS_BYTES_MAX)
        entries = list(parsed["keys"])[:_KEYS_MAX]
    except (ValueError, TypeError, KeyError) as error:
        raise InvalidConfig(f"the JWKS is no key set: {error!r}") from error
    keys: dict[str, Key] = {}
    for entry in entries:
        key = _usable_key(entry)
        if key is not None:
            keys[str(entry.get("kid") or "")] = key
    if not keys:
        raise InvalidConfig(
            f"the JWKS has no usable key: RSA from 2048 bits, EC or OKP. keys={len(entries)}"
        )
    return keys


def _usable_key(entry: Any) -> Key | None:
    if not isinstance(entry, dict) or entry.get("kty") not in _KEY_TYPES:
        return None
    if entry.get("use", "sig") != "sig":
        return None
    try:
        if entry["kty"] == "RSA" and _bits(entry["n"]) < _RSA_BITS_MIN:
            return None
        key = jwk.import_key(entry)
    except (JoseError, binascii.Error, ValueError, TypeError, KeyError, AttributeError):
        return None
    return key if isinstance(key, jwk.RSAKey | jwk.ECKey | jwk.OKPKey) else None


def _bits(number: str) -> int:
    padded = number + "=" * (-len(number) % 4)
    return int.from_bytes(base64.urlsafe_b64decode(padded)).bit_length()


class JwksCache:
    """The newest keys, and the time of the next load."""

    def __init__(
        self, refresh_ms: int = 3_600_000, backoff_ms: int = 100, backoff_max_ms: int = 10_000
    ) -> None:
        """Load again after `refresh_ms`; after a failure, after a doubling back-off."""
        self.keys: dict[str, Key] = {}
        self.due_ms = 0
        """Wall-clock time in ms of the next load; 0 means now."""
        self._refresh_ms = refresh_ms
        self._backoff = Backoff(backoff_ms / 1000, max(backoff_ms, backoff_max_ms) / 1000)
        self._loaded_ms: int | None = None

    def loaded(self, document: bytes, now_ms: int) -> None:
        """Replace the keys.

        Raises:
            InvalidConfig: see `parse_jwks`; the keys stay.
        """
        self.keys = parse_jwks(document)
        self._backoff.reset()
        self._loaded_ms = now_ms
        self.due_ms = now_ms + self._refresh_ms

    def failed(self, now_ms: int) -> None:
        """Record that a load failed."""
        self.due_ms = now_ms + round(self._backoff.next_s() * 1000)

    def find(self, key_id: str | None, now_ms: int) -> Key | None:
        """Return the key with this id, or the only key for None; else ask for an early refresh."""
        if key_id is None and len(self.keys) == 1:
            return next(iter(self.keys.values()))
        key = self.keys.get(key_id or "")
        if key is None and self._loaded_ms is not None:
            self.due_ms = min(self.due_ms, max(now_ms, self._loaded_ms + EARLY_REFRESH_MS))
        return key
