"""Filters of names: a part in any case, or `/regular expression/` by RE2.

RE2 takes time linear in the names. Python's own engine would let one filter stop the console.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from sparklog.console.resources import FieldSpec
from sparklog.core.errors import InvalidRequest

FILTER_MAX: Final = 300
FILTER: Final = FieldSpec(
    "filter", "part of the name, or a regular expression between slashes", length_max=FILTER_MAX
)


def matching_names(names: Sequence[str], text: str) -> list[str]:
    """Return the names that a filter matches, in their order; all of them for an empty one.

    Raises:
        InvalidRequest: RE2 rejects the regular expression.
    """
    if not text:
        return list(names)
    if len(text) > 2 and text.startswith("/") and text.endswith("/"):
        try:
            found = pc.match_substring_regex(pa.array(names, pa.string()), text[1:-1])
        except pa.ArrowInvalid as error:
            raise InvalidRequest(
                f"the filter is no regular expression that RE2 takes: {error}"
            ) from error
        return [name for name, hit in zip(names, found.to_pylist(), strict=True) if hit]
    part = text.lower()
    return [name for name in names if part in name.lower()]
