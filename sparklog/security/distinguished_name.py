"""User names from certificates: the distinguished name as Java writes it, and Kafka's rules for it.

`ssl.principal.mapping.rules` has rules `RULE:pattern/replacement/[LU]` and `DEFAULT`, with commas
between. The first that matches the whole name makes the user's name; `DEFAULT` takes it as it is.
Source: KIP-371; RFC 2253; Java's `X500Principal.getName()`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from cryptography import x509
from cryptography.x509.name import _ASN1Type as Asn1Type
from cryptography.x509.oid import NameOID

from sparklog.core.errors import InvalidConfig

RULES_CHARS_MAX: Final = 10_000
NAME_CHARS_MAX: Final = 4096
"""A longer name is refused before any pattern sees it."""
_SHORT: Final = {
    NameOID.COMMON_NAME: "CN",
    NameOID.COUNTRY_NAME: "C",
    NameOID.LOCALITY_NAME: "L",
    NameOID.STATE_OR_PROVINCE_NAME: "ST",
    NameOID.ORGANIZATION_NAME: "O",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
    NameOID.STREET_ADDRESS: "STREET",
    NameOID.DOMAIN_COMPONENT: "DC",
    NameOID.USER_ID: "UID",
}
_SPECIAL: Final = re.compile(r'([,+"\\<>;])')
_SPLIT: Final = re.compile(
    r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)"
)
_GROUP: Final = re.compile(r"\\(.)|\$([0-9]+)")


def subject_name(certificate: bytes) -> str:
    """Return the subject of a DER certificate as RFC 2253 writes it: `CN=a,OU=b`.

    Raises:
        ValueError: not a certificate.
    """
    subject = x509.load_der_x509_certificate(certificate).subject
    return ",".join("+".join(map(_attribute, rdn)) for rdn in reversed(subject.rdns))


def _attribute(attribute: x509.NameAttribute[Any]) -> str:
    short = _SHORT.get(attribute.oid)
    value = attribute.value
    if short is None:
        return f"{attribute.oid.dotted_string}=#{_der(attribute).hex()}"
    text = value if isinstance(value, str) else value.hex()
    text = _SPECIAL.sub(r"\\\1", text)
    if text.startswith((" ", "#")):
        text = "\\" + text
    if text.endswith(" ") and len(text) > 1:
        text = text[:-1] + "\\ "
    return f"{short}={text}"


def _der(attribute: x509.NameAttribute[Any]) -> bytes:
    kind: Asn1Type = attribute._type  # noqa: SLF001 - the library has no other way to know it
    value = attribute.value
    wide = {Asn1Type.BMPString: "utf-16-be", Asn1Type.UniversalString: "utf-32-be"}
    data = value.encode(wide.get(kind, "utf-8")) if isinstance(value, str) else value
    size = len(data)
    length = bytes([size]) if size < 128 else bytes([0x82, size >> 8, size & 255])
    return bytes([kind.value]) + length + data


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str] | None
    """None for DEFAULT."""
    replacement: str = ""
    case: str = ""

    def apply(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        found = self.pattern.fullmatch(name)
        if found is None:
            return None
        made = _GROUP.sub(lambda g: g[1] or found[int(g[2])] or "", self.replacement)
        return made.lower() if self.case == "L" else made.upper() if self.case == "U" else made


class PrincipalRules:
    """The rules of one listener."""

    def __init__(self, text: str) -> None:
        """Parse the value of `ssl.principal.mapping.rules`.

        Raises:
            InvalidConfig: it is no list of rules.
        """
        self._rules = [_rule(found) for found in _matches(text.strip() or "DEFAULT")]

    def user_name(self, name: str) -> str | None:
        """Return the user's name for a distinguished name; None if no rule matches it."""
        if len(name) > NAME_CHARS_MAX:
            return None
        return next((made for r in self._rules if (made := r.apply(name)) is not None), None)


def _matches(text: str) -> list[re.Match[str]]:
    if len(text) > RULES_CHARS_MAX:
        raise InvalidConfig(
            f"ssl.principal.mapping.rules has more than {RULES_CHARS_MAX} characters."
        )
    found, at = [], 0
    while at < len(text):
        match = _SPLIT.match(text, at)
        if match is None:
            raise InvalidConfig(
                "ssl.principal.mapping.rules takes DEFAULT and RULE:pattern/replacement/[LU], with "
                f"commas between. rest={text[at : at + 100]!r}"
            )
        found.append(match)
        at = match.end()
    return found


def _rule(found: re.Match[str]) -> _Rule:
    if found[1]:
        return _Rule(None)
    try:
        pattern = re.compile(found[2])
    except re.error as error:
        raise InvalidConfig(
            "ssl.principal.mapping.rules has a pattern that is no regular expression. "
            f"pattern={found[2]!r} problem={error}"
        ) from None
    groups = [int(g[2]) for g in _GROUP.finditer(found[3]) if g[2]]
    if any(group > pattern.groups for group in groups):
        raise InvalidConfig(
            "ssl.principal.mapping.rules refers to a group that the pattern does not have. "
            f"pattern={found[2]!r} replacement={found[3]!r}"
        )
    return _Rule(pattern, found[3], found[4])
