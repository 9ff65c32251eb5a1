"""Difference: a reason for which readers of one schema cannot read what another one writes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sparklog.registry.model.refusal import invalid_schema

DIFFERENCES_MAX: Final = 50
"""A response names as many; one is enough to refuse a schema."""
EXTRA_LENGTH_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class Difference:
    """One reason; `kind` is Confluent's name of it, where there is one."""

    kind: str
    path: str
    """A JSON pointer into the reader's schema."""
    text: str
    extra: str = ""

    def message(self) -> str:
        """Return the reason in the shape of Confluent's messages."""
        extra = self.extra[:EXTRA_LENGTH_MAX]
        return (
            f"{{errorType:'{self.kind}', description:'{self.text} at path {self.path!r}', "
            f"additionalInfo:'{extra}'}}"
        )


def within_depth(judged: Callable[[], list[Difference]]) -> list[Difference]:
    """Return the differences, or refuse schemas that nest too deeply to be judged.

    Raises:
        RegistryRefused: too deep.
    """
    try:
        return judged()[:DIFFERENCES_MAX]
    except RecursionError:
        raise invalid_schema("it nests too deeply to be compared") from None
