"""JSON checks before Spark may read a text: one document, not too large, not too deep.

Spark's readers take the first of several documents and drop the rest. They follow nested values by
recursion, so a text of a few kilobytes overflows the stack of an executor, which ends it. These
checks run before any reader. They are Spark expressions without recursion and without patterns that
backtrack: any text costs them a few passes over its bytes.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as sf

DEPTH_MAX: Final = 64
"""Levels of objects and arrays. Tables of nested columns work up to about 100."""
BYTES_MAX: Final = 16 << 20
"""Bytes of a text. Jackson, which Spark reads JSON with, takes strings up to 20,000,000."""
STANDARD_JSON: Final = {"allowSingleQuotes": "false"}
"""For Spark's readers. In text between single quotes `is_too_deep` would count other brackets."""
DEPTH_OPTION: Final = {"maxNestingDepth": str(DEPTH_MAX)}
"""For Spark's readers of text that these checks cannot see first: Jackson rejects a deeper text."""
_SENTINEL: Final = ",0,0,0]"
_SENTINEL_LENGTH: Final = 3


def is_one_document(text: Column) -> Column:
    """Return whether a text holds exactly one JSON document.

    The text becomes the first element of an array that ends with a sentinel. So the array has
    another length, or none, where the text holds more or less. Jackson counts without recursion.
    """
    length = sf.json_array_length(sf.concat(sf.lit("["), text, sf.lit(_SENTINEL)))
    return sf.coalesce(length == 1 + _SENTINEL_LENGTH, sf.lit(False))


def is_too_large(text: Column) -> Column:
    """Return whether a text has more than `BYTES_MAX` bytes."""
    return sf.octet_length(text) > BYTES_MAX


def is_too_deep(text: Column) -> Column:
    """Return whether objects and arrays in a text are nested deeper than `DEPTH_MAX`.

    Nothing is looked at but the number of brackets, unless there are enough of them.
    """
    openers = sf.octet_length(text) - sf.octet_length(
        sf.replace(sf.replace(text, sf.lit("{")), sf.lit("["))
    )
    enough = (sf.octet_length(text) > 2 * DEPTH_MAX) & (openers > DEPTH_MAX)
    return sf.when(enough, _levels_left(text) != "").otherwise(sf.lit(False))


def readable(text: Column) -> Column:
    """Return a text that Spark may read; null for one that is too large or too deep."""
    return sf.when(~is_too_large(text) & ~is_too_deep(text), text)


def _levels_left(text: Column) -> Column:
    """Return the brackets of a text without its innermost `DEPTH_MAX` levels."""
    plain = sf.replace(sf.replace(text, sf.lit("\\\\")), sf.lit('\\"'))
    outside = sf.array_join(sf.filter(sf.split(plain, '"'), lambda _, at: at % 2 == 0), "")
    brackets = sf.regexp_replace(outside, "[^\\[\\]{}]+", "")
    alike = sf.replace(sf.replace(brackets, sf.lit("["), sf.lit("{")), sf.lit("]"), sf.lit("}"))
    levels = sf.sequence(sf.lit(1), sf.lit(DEPTH_MAX))
    return sf.aggregate(levels, alike, lambda left, _: sf.replace(left, sf.lit("{}")))
