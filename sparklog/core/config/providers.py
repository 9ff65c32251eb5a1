"""Reads secrets that settings refer to: `${file:…}`, `${dir:…}` and `${env:…}`.

- `${file:/run/secrets/kafka.properties:password}`: a key of a properties file.
- `${dir:/run/secrets:password}`: a whole file of a folder.
- `${env:KAFKA_PASSWORD}`: an environment variable.

Errors name the setting and the reference. They never show a secret. Kafka needs `config.providers`
to declare these names; here they are always known, and declarations may add other names.

Source: Kafka's FileConfigProvider, DirectoryConfigProvider and EnvVarConfigProvider (KIP-297,
KIP-421, KIP-887).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from sparklog.core.config.properties import (
    SecretReference,
    parse_properties,
    replace_references,
)
from sparklog.core.errors import InvalidConfig

FILE_BYTES_MAX: Final = 1 << 20
"""A longer file is refused: settings and certificates are far shorter."""

_CLASSES: Final = {
    "org.apache.kafka.common.config.provider.FileConfigProvider": "file",
    "org.apache.kafka.common.config.provider.DirectoryConfigProvider": "dir",
    "org.apache.kafka.common.config.provider.EnvVarConfigProvider": "env",
}
_DECLARED: Final = "config.providers"


class SecretReader:
    """Reads each file once, so one reader serves one look at a set of settings."""

    def __init__(
        self,
        declared: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Know the three providers, and those that `config.providers*` in `declared` declare.

        Args:
            declared: settings, of which only the declarations are used.
            environment: by default the variables of the process.

        Raises:
            InvalidConfig: a declared class is none of the three, or has parameters.
        """
        self._kinds = {"file": "file", "dir": "dir", "env": "env", **_declared(declared or {})}
        self._environment = (
            os.environ if environment is None else environment  # noqa: TID251 - this is the edge
        )
        self._files: dict[str, Mapping[str, str]] = {}

    def value(self, name: str, text: str) -> str:
        """Return the text of a setting with its references replaced by the secrets.

        Raises:
            InvalidConfig: a file, a key or a variable is missing, or the provider is unknown.
        """
        return replace_references(text, lambda reference: self._secret(name, reference))

    def values(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Return all settings with references replaced, without `config.providers*`.

        Raises:
            InvalidConfig: as `value`.
        """
        return {
            name: self.value(name, text)
            for name, text in settings.items()
            if not is_declaration(name)
        }

    def _secret(self, name: str, reference: SecretReference) -> str:
        kind = self._kinds.get(reference.provider)
        if kind is None:
            known = ", ".join(sorted(self._kinds))
            raise InvalidConfig(
                f"a setting refers to an unknown provider; known are {known}. "
                f"setting={name} reference={reference}"
            )
        where = f"setting={name} reference={reference}"
        if kind == "env":
            found = None if reference.path else self._environment.get(reference.key)
        elif not reference.path:
            raise InvalidConfig(f"a reference to a file needs a path and a key. {where}")
        elif kind == "dir":
            if "/" in reference.key or reference.key in ("", ".", ".."):
                raise InvalidConfig(f"the key names no file of the folder. {where}")
            found = read_bounded(Path(reference.path) / reference.key, where).rstrip("\r\n")
        else:
            if reference.path not in self._files:
                text = read_bounded(Path(reference.path), where)
                self._files[reference.path] = parse_properties(text, reference.path)
            found = self._files[reference.path].get(reference.key)
        if found is None:
            raise InvalidConfig(f"a setting refers to a secret that does not exist. {where}")
        return found


def is_declaration(name: str) -> bool:
    """Return True for `config.providers` and the settings of declared providers."""
    return name == _DECLARED or name.startswith(f"{_DECLARED}.")


def read_properties(path: Path, purpose: str) -> dict[str, str]:
    """Return the settings of a properties file; references stay in them.

    Args:
        path: the file.
        purpose: the option or setting that names it, for errors.

    Raises:
        InvalidConfig: the file cannot be read, or is no properties file.
    """
    return parse_properties(read_bounded(path, f"setting={purpose}"), str(path))


def read_bounded(path: Path, where: str) -> str:
    """Return the text of a file that a setting names, such as a certificate.

    Args:
        path: the file.
        where: the setting as `setting=name`, for errors.

    Raises:
        InvalidConfig: the file cannot be read, is too long, or is no UTF-8.
    """
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) else "no such path"
        raise InvalidConfig(
            f"a file of a setting cannot be read. {where} file={path} problem={problem}"
        ) from None
    if len(data) > FILE_BYTES_MAX:
        raise InvalidConfig(
            f"a file of a setting has more than {FILE_BYTES_MAX} bytes. {where} file={path}"
        )
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidConfig(f"a file of a setting is no UTF-8. {where} file={path}") from None


def _declared(settings: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for word in settings.get(_DECLARED, "").split(","):
        alias = word.strip()
        if not alias:
            continue
        prefix = f"{_DECLARED}.{alias}."
        kind = _CLASSES.get(settings.get(f"{prefix}class", "").strip())
        if kind is None:
            raise InvalidConfig(
                f"a config provider is one of {', '.join(_CLASSES)}. setting={prefix}class"
            )
        parameters = [name for name in settings if name.startswith(f"{prefix}param.")]
        if parameters:
            raise InvalidConfig(
                f"config providers have no parameters here; remove them. settings={parameters}"
            )
        found[alias] = kind
    return found
