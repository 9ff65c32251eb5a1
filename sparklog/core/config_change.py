"""A change of stored settings: what is new in it is checked, what stays is not.

A newer version may have stored what this one does not understand. It stands in the way of no other
change, stays when others are changed, and goes when it is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from sparklog.core.config import Setting, understood

_NOTHING: Final[Mapping[str, str]] = {}


@dataclass(frozen=True, slots=True)
class ConfigChange:
    """What becomes of the settings of one topic or group, or of the defaults of all topics."""

    given: Mapping[str, str]
    """What is new. What is stored may be given as it is, by who replaces all settings."""
    gone: tuple[str, ...]
    """What is removed, whoever stored it."""
    kept: Mapping[str, str]
    """What stays as it is stored."""
    names: tuple[str, ...]
    """What has to be known here: all that is given, and what was to be removed but is not there."""

    @classmethod
    def of(
        cls, stored: Mapping[str, str], set_: Mapping[str, str], remove: Iterable[str]
    ) -> ConfigChange:
        """Return what changes when some settings are set and others removed."""
        removed = tuple(dict.fromkeys(remove))
        given = {name: text for name, text in set_.items() if stored.get(name) != text}
        gone = tuple(name for name in removed if name in stored and name not in set_)
        kept = {n: text for n, text in stored.items() if n not in given and n not in gone}
        return cls(given, gone, kept, (*given, *(n for n in removed if n not in stored)))

    def after(
        self, table: Mapping[str, Setting], behind: Mapping[str, str] = _NOTHING
    ) -> dict[str, str]:
        """Return what is in force then, to be checked: all that is new, of the rest what is known.

        Args:
            table: the settings there are.
            behind: what is in force where nothing is set.
        """
        return {**understood({**behind, **self.kept}, table)[0], **self.given}
