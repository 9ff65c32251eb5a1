"""Templates of pages, and the filters that turn foreign text into harmless markup.

Jinja escapes every value. Before that, control characters become escapes (decision 50), so that no
name reorders or hides other text.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from sparklog.console.vendored import CODEMIRROR, HTMX, UPLOT, UPLOT_STYLE
from sparklog.core.terminal_text import printable

HERE: Final = Path(__file__).parent
STATIC: Final = HERE / "static"
_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_KIB: Final = 1024.0
MINUTE_MS: Final = 60_000
NONE_MARK: Final = "–"  # noqa: RUF001 - shown for what is not known


def new_environment() -> Environment:
    """Return the environment of all templates."""
    made = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_harmless,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals |= {
        "codemirror": CODEMIRROR,
        "htmx": HTMX,
        "uplot": UPLOT,
        "uplot_style": UPLOT_STYLE,
    }
    made.filters |= {
        "number": number,
        "size": size,
        "time": time_element,
        "duration": duration,
        "segment": segment,
        "query": query,
        "money": money,
        "words": words,
    }
    return made


def _harmless(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(value)
    return value


def number(value: float | None) -> str:
    """Return a number with thousands apart."""
    if value is None:
        return NONE_MARK
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"


def size(value: float | None) -> str:
    """Return bytes in a readable unit."""
    if value is None:
        return NONE_MARK
    sign, left = ("-" if value < 0 else ""), abs(float(value))
    for unit in _UNITS:
        if left < _KIB or unit == _UNITS[-1]:
            return f"{sign}{left:.0f} {unit}" if unit == "B" else f"{sign}{left:.1f} {unit}"
        left /= _KIB
    raise AssertionError("the last unit ends the loop")


def money(value: float | None) -> str:
    """Return an amount with as many digits as a small one needs."""
    if value is None:
        return NONE_MARK
    return f"{value:,.2f}" if abs(value) >= 1 or not value else f"{value:.6f}"


def time_element(timestamp_ms: int | None) -> Markup | str:
    """Return a `<time>`: UTC here, which the page's script turns to the reader's zone."""
    if timestamp_ms is None:
        return NONE_MARK
    try:
        at = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"
    iso = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    shown = at.strftime("%Y-%m-%d %H:%M:%S UTC")
    return Markup('<time datetime="{}" title="{}">{}</time>').format(iso, iso, shown)


def duration(milliseconds: int | None) -> str:
    """Return a duration in a readable unit."""
    if milliseconds is None:
        return NONE_MARK
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if milliseconds < MINUTE_MS:
        return f"{milliseconds / 1000:.1f} s"
    minutes = milliseconds / MINUTE_MS
    return f"{minutes:.1f} min" if minutes < 60 else f"{minutes / 60:.1f} h"


def segment(text: object) -> str:
    """Return a name as one part of a path."""
    return quote(str(text), safe="")


def query(values: dict[str, Any], **changes: Any) -> Markup:
    """Return a query from some values and changes to them; empty ones are left out."""
    kept = {k: v for k, v in {**values, **changes}.items() if v is not None and v is not False}
    spelled = {k: "1" if v is True else v for k, v in kept.items() if v != ""}
    return escape("?" + urlencode(spelled) if spelled else "")


def words(text: str | None) -> Markup:
    """Return a sentence with its `code` as code."""
    parts = printable(text or "").split("`")
    if len(parts) % 2 == 0:
        return escape("`".join(parts))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(parts)
    )
