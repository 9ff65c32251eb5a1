"""Names as parts of SQL: every name that comes from data passes through here.

Spark takes whatever is between backticks as one name, if each backtick in it is written twice.
"""

from __future__ import annotations


def quoted(*names: str) -> str:
    """Return a column of Spark SQL: a name, or a path through structs. Any name will do."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in names)


def literal(text: str) -> str:
    """Return a text as a string literal of Spark SQL."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
