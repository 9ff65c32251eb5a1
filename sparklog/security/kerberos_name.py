r"""User names from Kerberos principals, by the rules of `sasl.kerberos.principal.to.local.rules`.

    RULE:[2:$1@$0](.*@EXAMPLE\.COM)s/@.*///L     DEFAULT

A rule `RULE:[n:format](match)s/pattern/replacement/g/L` is for principals of n components. It fills
`format` with the realm (`$0`) and the components (`$1`, `$2`). If `match` does not match all of
that, the rule does not apply. It replaces the first `pattern`, or with `g` each one. `L` and `U`
change the case. `DEFAULT` takes the first component of a principal of the default realm. The first
rule that applies makes the name.

Source: Kafka's `KerberosShortNamer` and `KerberosRule`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sparklog.core.errors import InvalidConfig

SETTING: Final = "sasl.kerberos.principal.to.local.rules"
RULES_MAX: Final = 1000
RULE_CHARS_MAX: Final = 10_000
NAME_CHARS_MAX: Final = 1024
"""A longer principal is rejected before any pattern sees it."""

_NAME: Final = re.compile(r"([^/@]*)(?:/([^/@]*))?@([^/@]*)")
_RULE: Final = re.compile(
    r"(DEFAULT)|RULE:\[([0-9]+):([^\]]*)\](?:\(([^)]*)\))?"
    r"(?:s/([^/]*)/([^/]*)/(g)?)?/?([LU])?"
)
_PARAMETER: Final = re.compile(r"\$([0-9]*)")
_REFERENCE: Final = re.compile(r"\\(.?)|\$(?:([0-9]+)|\{([A-Za-z][A-Za-z0-9]*)\})?", re.S)
_JAVA_GROUP_NAME: Final = re.compile(r"\(\?<([A-Za-z][A-Za-z0-9]*)>")


class UnmappedPrincipal(ValueError):
    """No rule makes a user name from a principal. The message names the principal."""


@dataclass(frozen=True, slots=True)
class KerberosName:
    """A principal: `service/host@REALM`, or `service@REALM`."""

    service: str
    host: str | None
    realm: str

    @classmethod
    def parse(cls, text: str) -> KerberosName:
        """Return the parts of a principal.

        Kafka takes a principal without a realm for a user name; here it is malformed. So is one
        with a backslash, by which MIT Kerberos spells a slash inside a component.

        Raises:
            UnmappedPrincipal: it is malformed, or has more than two components.
        """
        found = _NAME.fullmatch(text) if len(text) <= NAME_CHARS_MAX else None
        if found is None or "\\" in text or not text.isprintable():
            raise UnmappedPrincipal(
                "the principal is not of the form name@REALM or name/host@REALM. "
                f"principal={text[:NAME_CHARS_MAX]!r}"
            )
        return cls(found[1], found[2], found[3])

    def __str__(self) -> str:
        host = "" if self.host is None else f"/{self.host}"
        return f"{self.service}{host}@{self.realm}"


class LocalNames:
    """The rules of one listener."""

    def __init__(self, rules: Sequence[str], default_realm: str) -> None:
        """Parse the rules; an empty realm is none, so that DEFAULT never applies.

        Raises:
            InvalidConfig: a rule is malformed.
        """
        if len(rules) > RULES_MAX:
            raise InvalidConfig(f"there are too many rules. setting={SETTING} most={RULES_MAX}")
        self._rules = [_parsed(text) for text in rules or ("DEFAULT",)]
        self._shown = ", ".join(rules) or "DEFAULT"
        self._default_realm = default_realm

    def user_name(self, name: KerberosName) -> str:
        """Return the user name of a principal.

        Raises:
            UnmappedPrincipal: no rule applies, or the first one makes no simple name.
        """
        parts = [name.realm, name.service, *(() if name.host is None else (name.host,))]
        for rule in self._rules:
            made = rule.apply(parts, self._default_realm)
            if made is None:
                continue
            if not made or "/" in made or "@" in made:
                raise UnmappedPrincipal(
                    f"a rule makes no user name, but {made[:NAME_CHARS_MAX]!r}, which is empty or "
                    f"has a slash or an at sign. principal={name} rule={rule.text}"
                )
            return rule.cased(made)
        raise UnmappedPrincipal(
            f"no rule of {SETTING} applies; is this the right realm? principal={name} "
            f"default_realm={self._default_realm or '(none)'} rules={self._shown}"
        )


@dataclass(frozen=True, slots=True)
class _LocalNameRule:
    text: str
    components: int = 0
    """Zero for DEFAULT."""
    format: str = ""
    match: re.Pattern[str] | None = None
    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    repeat: bool = False
    case: str = ""

    def apply(self, parts: Sequence[str], default_realm: str) -> str | None:
        """Return the name for realm and components; None if the rule does not apply."""
        if self.text == "DEFAULT":
            return parts[1] if default_realm and parts[0] == default_realm else None
        if len(parts) - 1 != self.components:
            return None
        base = _PARAMETER.sub(lambda found: parts[int(found[1])], self.format)
        if self.match is not None and self.match.fullmatch(base) is None:
            return None
        if self.pattern is None:
            return base
        return self.pattern.sub(self._replaced, base, count=0 if self.repeat else 1)

    def cased(self, name: str) -> str:
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name

    def _replaced(self, found: re.Match[str]) -> str:
        def text_of(reference: re.Match[str]) -> str:
            if reference[1]:
                return reference[1]
            if reference[3]:
                return found[reference[3]] or ""
            group, rest = _group(reference[2], found.re.groups)
            return (found[group] or "") + rest

        return _REFERENCE.sub(text_of, self.replacement)


def _group(digits: str, groups: int) -> tuple[int, str]:
    """Return the group that digits name in Java, and the digits that are plain text after it."""
    used = 1
    while used < len(digits) and int(digits[: used + 1]) <= groups:
        used += 1
    return int(digits[:used]), digits[used:]


def _parsed(text: str) -> _LocalNameRule:
    found = _RULE.fullmatch(text) if len(text) <= RULE_CHARS_MAX else None
    if found is None:
        raise _malformed(text, "it is neither DEFAULT nor RULE:[n:format](match)s/a/b/g/L")
    if found[1]:
        return _LocalNameRule(text)
    components = int(found[2][:9])
    for parameter in _PARAMETER.finditer(found[3]):
        digits = parameter[1]
        if not digits or len(digits) > 9 or int(digits) > components:
            raise _malformed(text, f"its format has $0 to ${components} only")
    pattern = _compiled(found[5], text)
    if pattern is not None:
        _check_references(found[6], pattern, text)
    match = _compiled(found[4], text)
    return _LocalNameRule(
        text, components, found[3], match, pattern, found[6] or "", bool(found[7]), found[8] or ""
    )


def _compiled(pattern: str | None, rule: str) -> re.Pattern[str] | None:
    if pattern is None:
        return None
    try:
        return re.compile(_JAVA_GROUP_NAME.sub(r"(?P<\1>", pattern))
    except re.error as error:
        raise _malformed(rule, f"{pattern!r} is no regular expression: {error}") from None


def _check_references(replacement: str, pattern: re.Pattern[str], rule: str) -> None:
    for found in _REFERENCE.finditer(replacement):
        if found[1]:
            continue
        known = found[3] in pattern.groupindex if found[3] else False
        if found[2] and len(found[2]) <= 9:
            known = _group(found[2], pattern.groups)[0] <= pattern.groups
        if not known:
            raise _malformed(rule, f"its replacement has {found[0]!r}, which names no group")


def _malformed(rule: str, reason: str) -> InvalidConfig:
    return InvalidConfig(f"a rule is malformed: {reason}. setting={SETTING} rule={rule[:300]!r}")
