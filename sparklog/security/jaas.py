"""Parses the value of `sasl.jaas.config`: the login module and its options. Source: KIP-85.

org.apache.kafka.common.security.scram.ScramLoginModule required username="a" password="b";
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from sparklog.core.config.properties import is_reference
from sparklog.core.errors import InvalidConfig

_PREFIX: Final = "org.apache.kafka.common.security."
PLAIN_MODULE: Final = f"{_PREFIX}plain.PlainLoginModule"
SCRAM_MODULE: Final = f"{_PREFIX}scram.ScramLoginModule"
OAUTHBEARER_MODULE: Final = f"{_PREFIX}oauthbearer.OAuthBearerLoginModule"
KERBEROS_MODULE: Final = "com.sun.security.auth.module.Krb5LoginModule"
MODULES: Final = (PLAIN_MODULE, SCRAM_MODULE, OAUTHBEARER_MODULE, KERBEROS_MODULE)
JAAS_CHARS_MAX: Final = 1 << 20

_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/|(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
    r"""|(?P<mark>[=;])|(?P<word>[^\s=;"']+)|(?P<wrong>.)""",
    re.S,
)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b"}


@dataclass(frozen=True, slots=True)
class JaasLogin:
    """One login module."""

    module: str
    options: Mapping[str, str] = field(repr=False)


def parse_jaas(text: str, setting: str = "sasl.jaas.config") -> JaasLogin:
    """Return the only login module of a setting.

    Raises:
        InvalidConfig: malformed, several modules, or a module that is not supported. The message
            names the setting and never shows a value.
    """
    if len(text) > JAAS_CHARS_MAX:
        raise _malformed(setting, f"it has more than {JAAS_CHARS_MAX} characters")
    words = _words(text, setting)
    if len(words) < 3 or words[0][1] or words[1][1]:
        raise _malformed(setting, "it is no `module required option=value;`")
    module, flag = words[0][0], words[1][0]
    if flag.lower() not in _FLAGS:
        raise _malformed(setting, "the second word is not `required`")
    if words[-1] != (";", "mark"):
        raise _malformed(setting, "the closing semicolon is missing")
    if module not in MODULES:
        shown = module if module.endswith("LoginModule") else "another one"
        raise InvalidConfig(
            f"the login module is not supported; choose from {', '.join(MODULES)}. "
            f"setting={setting} module={shown}"
        )
    rest = words[2:-1]
    options: dict[str, str] = {}
    for at in range(0, len(rest), 3):
        name, equals, value = (*rest[at : at + 3], ("", ""), ("", ""))[:3]
        if name[1] or equals != ("=", "mark") or value[1] == "mark" or len(rest) - at < 3:
            raise _malformed(setting, "an option is no `name=value`, or there are two modules")
        options[name[0]] = value[0]
    return JaasLogin(module, options)


def read_jaas(
    text: str, setting: str, module: str, mechanism: str, secret: Callable[[str, str], str]
) -> JaasLogin:
    """Return a login whose secrets are in place. They are put in after the text is parsed.

    A quote in a secret therefore does not end its option.

    Args:
        text: the setting; it may be a reference as a whole.
        setting: its name.
        module: the login module that the mechanism needs.
        mechanism: for the error.
        secret: returns a text with its references replaced, by setting and text.

    Raises:
        InvalidConfig: malformed, of another module, or a secret cannot be read.
    """
    login = parse_jaas(secret(setting, text) if is_reference(text) else text, setting)
    if login.module != module:
        raise InvalidConfig(
            f"the login module belongs to another mechanism; {mechanism} needs {module}. "
            f"setting={setting} module={login.module}"
        )
    options = {option: secret(setting, value) for option, value in login.options.items()}
    return JaasLogin(login.module, options)


def _words(text: str, setting: str) -> list[tuple[str, str]]:
    """Return each word with its kind: `` for a bare word, `quoted`, or `mark`."""
    found = []
    for match in _TOKEN.finditer(text):
        if match["wrong"]:
            raise _malformed(setting, "a quote is not closed")
        if match["quoted"]:
            body = re.sub(r"\\(.)", lambda e: _ESCAPES.get(e[1], e[1]), match[0][1:-1], flags=re.S)
            found.append((body, "quoted"))
        elif match["mark"]:
            found.append((match[0], "mark"))
        elif match["word"]:
            found.append((match[0], ""))
    return found


def _malformed(setting: str, reason: str) -> InvalidConfig:
    return InvalidConfig(
        "a login is `module required option=value;`, values with spaces in quotes: "
        f"{reason}. setting={setting}"
    )
