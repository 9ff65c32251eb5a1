"""Resources: the table entries from which routes, pages, the JSON API and OpenAPI are made.

A `PageResource` reads; the same function fills the page and answers the API. A `ChangeAction`
changes something, and names the role that may do so. Every value from outside is bounded here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final

from sparklog.console.cluster_view import ClusterView
from sparklog.core.errors import InvalidRequest

TEXT_MAX: Final = 2000
WHOLE_MAX: Final = 2**63 - 1
ROWS_MAX: Final = 200


class ConsoleRole(IntEnum):
    """Rights in the console; each includes the lower ones."""

    VIEWER = 1
    """Sees everything that the log lets the user see."""
    EDITOR = 2
    """Creates topics, produces, moves offsets, runs jobs."""
    ADMIN = 3
    """Deletes, and changes settings."""

    @property
    def word(self) -> str:
        """Return its name in options and pages."""
        return self.name.lower()


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """A parameter of a page, or a field of a change."""

    name: str
    summary: str
    kind: str = "string"
    """`string`, `integer` or `boolean`."""
    choices: tuple[str, ...] = ()
    required: bool = False
    length_max: int = TEXT_MAX
    default: str = ""
    least: int = 0
    most: int = WHOLE_MAX

    def check(self, text: str) -> None:
        """Check a given value.

        Raises:
            InvalidRequest: too long, no number, outside its limits, or not one of the choices.
        """
        if len(text) > self.length_max:
            raise InvalidRequest(f"{self.name} is too long. length_max={self.length_max}")
        if self.kind == "integer":
            digits = text.removeprefix("-")
            if not (digits.isascii() and digits.isdigit() and len(digits) <= 19):
                raise InvalidRequest(f"{self.name} is a whole number, not {text[:40]!r}")
            if not self.least <= int(text) <= self.most:
                raise InvalidRequest(
                    f"{self.name} lies outside its limits. value={text} "
                    f"least={self.least} most={self.most}"
                )
        if self.choices and text not in self.choices:
            raise InvalidRequest(
                f"{self.name} is one of {', '.join(self.choices)}, not {text[:40]!r}"
            )


@dataclass(frozen=True, slots=True)
class BoundedValues:
    """Checked values of one request, by name: of its path and its query, or of its form."""

    given: Mapping[str, str]
    specs: Mapping[str, FieldSpec]
    session_id: str = ""
    """Of the session that asks; its queries belong to it."""

    @classmethod
    def checked(
        cls,
        given: Mapping[str, str],
        specs: tuple[FieldSpec, ...],
        path: Mapping[str, str],
        session_id: str = "",
    ) -> BoundedValues:
        """Return the values; an empty one counts as not given.

        Raises:
            InvalidRequest: an unknown name, a missing or a wrong value.
        """
        by_name = {spec.name: spec for spec in specs}
        unknown = sorted(given.keys() - by_name.keys())
        if unknown:
            known = ", ".join(by_name) or "none"
            raise InvalidRequest(f"no such parameter: {unknown[0][:40]!r}; there are {known}")
        kept = {name: text for name, text in given.items() if text}
        for name, text in kept.items():
            by_name[name].check(text)
        for spec in specs:
            if spec.required and spec.name not in kept:
                raise InvalidRequest(f"{spec.name} is needed: {spec.summary}")
        for name, text in path.items():
            FieldSpec(name, "", length_max=TEXT_MAX).check(text)
        return cls({**kept, **path}, by_name, session_id)

    def text(self, name: str) -> str:
        """Return a text; its default if it was not given."""
        found = self.given.get(name)
        if found is not None:
            return found
        spec = self.specs.get(name)
        return "" if spec is None else spec.default

    def whole(self, name: str) -> int:
        """Return a number; its default if it was not given.

        Raises:
            InvalidRequest: part of the path, and no number.
        """
        text = self.text(name)
        FieldSpec(name, "", "integer", least=-WHOLE_MAX).check(text)
        return int(text)

    def optional_whole(self, name: str) -> int | None:
        """Return a number, or None if it was not given."""
        return self.whole(name) if self.text(name) else None

    def flag(self, name: str) -> bool:
        """Return True for `1`, `true` or `on`."""
        return self.text(name).lower() in {"1", "true", "on"}


Reads = Callable[[ClusterView, BoundedValues], dict[str, Any]]
Runs = Callable[[ClusterView, BoundedValues], "ChangeDone"]


@dataclass(frozen=True, slots=True)
class ChangeDone:
    """The outcome of a change."""

    message: str
    location: str
    """The page to go to."""
    document: dict[str, Any] = field(default_factory=dict)
    """The API's answer, besides the message."""


@dataclass(frozen=True, slots=True)
class PageResource:
    """A page, and the same as JSON."""

    path: str
    name: str
    summary: str
    template: str
    read: Reads
    parameters: tuple[FieldSpec, ...] = ()
    root_only: bool = False
    brokers_only: bool = False


@dataclass(frozen=True, slots=True)
class ChangeAction:
    """A change, by a form or by JSON."""

    path: str
    name: str
    summary: str
    role: ConsoleRole
    run: Runs
    fields: tuple[FieldSpec, ...] = ()
    confirms: str = ""
    """The part of the path that the field `confirm` must repeat."""
    body_max: int = 64 * 1024

    def check_confirmed(self, values: BoundedValues) -> None:
        """Check that the name was typed. Raises InvalidRequest."""
        if self.confirms and values.text("confirm") != values.text(self.confirms):
            raise InvalidRequest(
                f"type the {self.confirms}'s name to confirm. {self.confirms}="
                f"{values.text(self.confirms)}"
            )


CONFIRM: Final = FieldSpec("confirm", "the name once more", required=True)
PAGE: Final = FieldSpec("page", "number of the page, from 1", "integer", default="1", least=1)


@dataclass(frozen=True, slots=True)
class RowPage:
    """Rows of one page of a sorted list."""

    page: int
    pages: int
    total: int
    first: int

    @classmethod
    def of(cls, total: int, page: int, rows: int) -> RowPage:
        """Return the page; one beyond the end is the last one."""
        pages = max(1, -(-total // rows))
        chosen = min(page, pages)
        return cls(chosen, pages, total, (chosen - 1) * rows)

    def document(self) -> dict[str, int]:
        """Return it as JSON values."""
        return {"page": self.page, "pages": self.pages, "total": self.total, "first": self.first}
