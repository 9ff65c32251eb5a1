"""ConfigChange: a change of stored settings, of which only the new part is checked.

A newer version may have stored settings that this one does not understand. They block no other
change, stay when others change, and are removed by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sparklog.core.config import Setting, understood

_NOTHING: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """The result of a change for one topic or group, or for the defaults of all topics."""

    given: Mapping[str, str]
    """New values.

    A caller that replaces all settings may repeat stored values; those are not new.
    """
    gone: tuple[str, ...]
    """Removed settings, of any version."""
    kept: Mapping[str, str]
    """Settings that stay as they are stored."""
    names: tuple[str, ...]
    """Names that must be known: all new ones, and removed ones that are not stored."""

    @classmethod
    def of(
        cls, stored: Mapping[str, str], set_: Mapping[str, str], remove: Iterable[str]
    ) -> ConfigChange:
        """Return the change that sets some settings and removes others."""
        removed = tuple(dict.fromkeys(remove))
        given = {name: text for name, text in set_.items() if stored.get(name) != text}
        gone = tuple(name for name in removed if name in stored and name not in set_)
        kept = {n: text for n, text in stored.items() if n not in given and n not in gone}
        return cls(given, gone, kept, (*given, *(n for n in removed if n not in stored)))

    def after(
        self, table: Mapping[str, Setting], behind: Mapping[str, str] = _NOTHING
    ) -> dict[str, str]:
        """Return the resulting settings for a check: new ones, and the known ones of the rest.

        Args:
            table: all settings.
            behind: values of settings that are not set.
        """
        return {**understood({**behind, **self.kept}, table)[0], **self.given}
