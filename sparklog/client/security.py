"""SecuritySettings: a client's settings as given, whose secrets are read at each new connection.

The object may be pickled and shown: it has the references to secrets, and its `repr` leaves out the
values of settings with secrets. A renewed password, token or certificate acts on the next
connection.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sparklog.client.security_settings import (
    SECRETS,
    ClientSecurity,
    check_security_names,
    inline_secrets,
    is_security_setting,
    parse_security,
)
from sparklog.core.config.properties import is_reference
from sparklog.core.config.providers import SecretReader, read_properties
from sparklog.core.errors import InvalidConfig

CONFIG_VARIABLE: Final = "SPARKLOG_COMMAND_CONFIG"
"""Environment variable with the path of a client properties file."""


class SecuritySettings:
    """Settings `security.protocol`, `sasl.*` and `ssl.*`, with references to secrets."""

    __slots__ = ("given",)

    def __init__(self, given: Mapping[str, str] | None = None) -> None:
        """Check the names of the settings; values are checked when they are used.

        Raises:
            InvalidConfig: an unknown name.
        """
        self.given: Final = dict(given or {})
        check_security_names(self.given)

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{name}={text if name not in SECRETS or is_reference(text) else '[hidden]'}"
            for name, text in self.given.items()
        )
        return f"SecuritySettings({shown})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SecuritySettings) and self.given == other.given

    def __hash__(self) -> int:
        return hash(frozenset(self.given.items()))

    def check_no_inline_secrets(self, prefix: str) -> None:
        """Check that secrets are references, where the settings themselves may be shown.

        Args:
            prefix: of the names in the error, such as `kafka.`.

        Raises:
            InvalidConfig: a setting contains a secret.
        """
        inline = inline_secrets(self.given)
        if inline:
            names = ", ".join(prefix + name for name in inline)
            raise InvalidConfig(
                "options appear in plans and logs, so they must not contain secrets; refer to a "
                f'file instead: password="${{file:/run/secrets/kafka:password}}". options={names}'
            )

    @property
    def protocol(self) -> str:
        """Return the security protocol, such as SASL_SSL; its value is not checked."""
        return self.given.get("security.protocol", "").strip().upper() or "PLAINTEXT"

    @property
    def encrypted(self) -> bool:
        """Return True if connections use TLS."""
        return self.protocol in ("SSL", "SASL_SSL")

    def resolve(self) -> ClientSecurity:
        """Return the checked values, with the secrets as they are now.

        Raises:
            InvalidConfig: a wrong value, or a secret that cannot be read.
        """
        if not self.given:
            return ClientSecurity()
        return parse_security(self.given, SecretReader(self.given).value)


NO_SECURITY: Final = SecuritySettings()
"""PLAINTEXT."""


def process_security() -> SecuritySettings:
    """Return the settings of the file that `SPARKLOG_COMMAND_CONFIG` names, or none.

    They serve where nothing else names settings, such as executors that find brokers by the root.

    Raises:
        InvalidConfig: the file cannot be read, or has an unknown security setting.
    """
    path = os.environ.get(CONFIG_VARIABLE)  # noqa: TID251 - the edge of each process
    return read_client_file(Path(path), CONFIG_VARIABLE)[0] if path else NO_SECURITY


def with_login(settings: Mapping[str, str], name: str, password: str) -> dict[str, str]:
    """Return a client's settings with a user and a password instead of those it has."""
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    kept = {n: text for n, text in settings.items() if not n.startswith("sasl.")}
    return {
        **kept,
        "security.protocol": protocol if protocol.startswith("SASL_") else f"SASL_{protocol}",
        "sasl.mechanism": settings.get("sasl.mechanism", "SCRAM-SHA-512"),
        "sasl.username": name,
        "sasl.password": password,
    }


def split_security(settings: Mapping[str, str]) -> tuple[SecuritySettings, dict[str, str]]:
    """Return the settings of TLS and SASL, and all others.

    Raises:
        InvalidConfig: an unknown name among the former.
    """
    chosen = {name: text for name, text in settings.items() if is_security_setting(name)}
    rest = {name: text for name, text in settings.items() if name not in chosen}
    return SecuritySettings(chosen), rest


def read_client_file(path: Path, option: str) -> tuple[SecuritySettings, dict[str, str]]:
    """Return the settings of a client properties file, split as by `split_security`.

    Raises:
        InvalidConfig: the file cannot be read, or has an unknown security setting.
    """
    return split_security(read_properties(path, option))
