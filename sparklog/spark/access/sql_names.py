"""Names as parts of SQL: every name that comes from data passes through here.

Spark takes any text between backticks as one name, if each backtick in it is written twice.
"""

from __future__ import annotations

from collections.abc import Iterable


def quoted(*names: str) -> str:
    """Return a column of Spark SQL: a name, or a path through structs. Any name will do."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


def spare_name(wanted: str, taken: Iterable[str]) -> str:
    """Return a name that differs from all that are taken by more than its case."""
    lowered = {name.lower() for name in taken}
    while wanted.lower() in lowered:
        wanted += "_"
    return wanted
