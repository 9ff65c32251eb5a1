"""Settings under Kafka's names: their definition, and the conversion of texts to checked values.

The tables are in `topic` and `broker` beside this module. A setting arrives as text, as in
Kafka. It is checked once, at the edge; other code gets only typed values.

CONFIG-1: A given unknown name or value is an error, never ignored. One that a newer version has
    stored stays unchanged, and is reported.
CONFIG-2: A value is within its limits, and relations between settings hold for the values
    together.
CONFIG-3: A setting without a value has its default; only given values are stored.

`ConfigChange` is a change of stored settings, of which only the new part is checked. A newer
version may have stored settings that this one does not understand. They block no other change, stay
when others change, and are removed by name.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sparklog.core.errors import InvalidConfig

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
"""Kafka's value for never or unbounded."""
HIDDEN: Final = "[hidden]"
"""Kafka's text for a secret."""

_SECRET: Final = re.compile(
    r"password|passphrase|secret|jaas\.config|keystore\.key$|private\.key$|[._]token$"
)

Value = bool | int | float | str | tuple[str, ...]


class SettingType(StrEnum):
    """A setting's type, with Kafka's names for it."""

    BOOLEAN = "boolean"
    INT = "int"
    LONG = "long"
    DOUBLE = "double"
    STRING = "string"
    LIST = "list"
    SHORT = "short"
    CLASS = "class"
    PASSWORD = "password"  # noqa: S105 - the name of a type


class Effect(StrEnum):
    """The component in which a setting has an effect."""

    APPEND = "on every append, with or without a broker"
    BROKER = "where a broker leads the partition"
    JOBS = "in the retain and compact jobs"
    NEVER = "nowhere: accepted so that a Kafka topic's settings carry over"


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting. `at_least` and `at_most` are inclusive; `choices` bounds text and lists."""

    name: str
    kind: SettingType
    default: Value
    acts: Effect
    reason: str
    """Its purpose, the cost of the default, or the reason why it has no effect here."""
    unit: str = ""
    at_least: float | None = None
    at_most: float | None = None
    choices: tuple[str, ...] = ()
    kafka_default: Value | None = None
    """Kafka's default if it differs; None if it is the same or Kafka has no such setting."""
    form: Callable[[str], object] | None = None
    """Raises ValueError for a text that has not the form of the setting; None: any text has it."""

    def parse(self, text: str) -> Value:
        """Return the value of `text`.

        Raises:
            InvalidConfig: not of this kind or outside its limits; the message names both.
        """
        value = _PARSERS[self.kind](self, text.strip())
        if isinstance(value, int | float) and not isinstance(value, bool):
            self._check_limits(value)
        return value

    def spell(self, value: Value) -> str:
        """Return `value` as Kafka's tools print it; a secret is `[hidden]`."""
        if self.kind is SettingType.PASSWORD:
            return HIDDEN if value else ""
        if isinstance(value, bool):
            return "true" if value else "false"
        return ",".join(value) if isinstance(value, tuple) else str(value)

    def refuse(self, text: str, expected: str) -> InvalidConfig:
        """Return the error for a value that this setting does not accept."""
        return InvalidConfig(f"{self.name} takes {expected}. {self.name}={text!r}")

    def _check_limits(self, value: float) -> None:
        if self.at_least is not None and value < self.at_least:
            raise self.refuse(str(value), f"a value of at least {self.at_least}")
        if self.at_most is not None and value > self.at_most:
            raise self.refuse(str(value), f"a value of at most {self.at_most}")


def _parse_boolean(setting: Setting, text: str) -> bool:
    if text.lower() not in {"true", "false"}:
        raise setting.refuse(text, "true or false")
    return text.lower() == "true"


def _parse_whole(setting: Setting, text: str) -> int:
    bound = INT_MAX if setting.kind is SettingType.INT else LONG_MAX
    if re.fullmatch(r"[+-]?[0-9]{1,19}", text) is None or not -bound - 1 <= int(text) <= bound:
        raise setting.refuse(text, f"a whole number of {32 if bound == INT_MAX else 64} bits")
    return int(text)


def _parse_double(setting: Setting, text: str) -> float:
    if re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", text) is None:
        raise setting.refuse(text, "a number")
    value = float(text)
    if math.isinf(value):
        raise setting.refuse(text, "a number within the range of a double")
    return value


def _parse_string(setting: Setting, text: str) -> str:
    if setting.choices and text not in setting.choices:
        raise setting.refuse(text, f"one of {', '.join(setting.choices)}")
    if setting.form is not None:
        try:
            setting.form(text)
        except ValueError as error:
            raise setting.refuse(text, str(error)) from error
    return text


def _parse_list(setting: Setting, text: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(",")) if text else ()
    wrong = [
        word for word in words if not word or (setting.choices and word not in setting.choices)
    ]
    if wrong or len(set(words)) != len(words):
        expected = f"some of {', '.join(setting.choices)}" if setting.choices else "words"
        raise setting.refuse(text, f"{expected}, each once, with commas between them")
    return words


_PARSERS: Final[Mapping[SettingType, Callable[[Setting, str], Value]]] = {
    SettingType.BOOLEAN: _parse_boolean,
    SettingType.INT: _parse_whole,
    SettingType.LONG: _parse_whole,
    SettingType.DOUBLE: _parse_double,
    SettingType.STRING: _parse_string,
    SettingType.LIST: _parse_list,
    SettingType.SHORT: _parse_whole,
    SettingType.CLASS: _parse_string,
    SettingType.PASSWORD: _parse_string,
}


def is_secret_name(name: str) -> bool:
    """Return True if a setting that this version does not know may contain a secret."""
    return _SECRET.search(name) is not None


def table_of(*settings: Setting) -> Mapping[str, Setting]:
    """Return the settings by name, in the order of their names."""
    return {setting.name: setting for setting in sorted(settings, key=lambda s: s.name)}


def check_names(names: Iterable[str], table: Mapping[str, Setting]) -> None:
    """Reject a name that is not in `table`.

    Raises:
        InvalidConfig: the message offers the closest known name.
    """
    for name in names:
        if name not in table:
            close = difflib.get_close_matches(name, table, n=1)
            hint = f"did you mean {close[0]}?" if close else f"known are {', '.join(table)}."
            raise InvalidConfig(f"unknown setting: {hint} setting={name!r}")


@dataclass(frozen=True, slots=True)
class Config(Mapping[str, Value]):
    """Every setting of a table with its value: given values, and the defaults for the rest."""

    table: Mapping[str, Setting]
    given: Mapping[str, Value]

    def __getitem__(self, name: str) -> Value:
        return self.given[name] if name in self.given else self.table[name].default

    def __iter__(self) -> Iterator[str]:
        return iter(self.table)

    def __len__(self) -> int:
        return len(self.table)

    def flag(self, name: str) -> bool:
        """Return the value of a boolean setting."""
        value = self[name]
        assert isinstance(value, bool), name
        return value

    def whole(self, name: str) -> int:
        """Return the value of an int or long setting."""
        value = self[name]
        assert isinstance(value, int), name
        assert not isinstance(value, bool), name
        return value

    def number(self, name: str) -> float:
        """Return the value of a double setting."""
        value = self[name]
        assert isinstance(value, float), name
        return value

    def text(self, name: str) -> str:
        """Return the value of a string setting."""
        value = self[name]
        assert isinstance(value, str), name
        return value

    def words(self, name: str) -> tuple[str, ...]:
        """Return the value of a list setting."""
        value = self[name]
        assert isinstance(value, tuple), name
        return value

    def spelled(self) -> dict[str, str]:
        """Return every setting as text, as Kafka's tools print it."""
        return {name: setting.spell(self[name]) for name, setting in self.table.items()}


def parse_configs(given: Mapping[str, str], table: Mapping[str, Setting]) -> Config:
    """Return the checked values of `given`, and the defaults of `table` for the rest.

    Raises:
        InvalidConfig: an unknown name, or a value outside its setting's limits.
    """
    check_names(given, table)
    return Config(table, {name: table[name].parse(text) for name, text in given.items()})


def understood(
    stored: Mapping[str, str], table: Mapping[str, Setting]
) -> tuple[dict[str, str], list[str]]:
    """Return the stored settings that this version understands, and messages about the rest.

    For callers that must continue with any settings that a newer version has stored.
    """
    kept: dict[str, str] = {}
    strange: list[str] = []
    for name, text in stored.items():
        if name not in table:
            shown = HIDDEN if is_secret_name(name) else repr(text)
            strange.append(f"no such setting here: {name}={shown}")
            continue
        try:
            table[name].parse(text)
        except InvalidConfig as error:
            strange.append(str(error))
        else:
            kept[name] = text
    return kept, strange


def understood_configs(stored: Mapping[str, str], table: Mapping[str, Setting]) -> Config:
    """Return the values of stored settings; those that are not `understood` have their defaults."""
    return parse_configs(understood(stored, table)[0], table)


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
