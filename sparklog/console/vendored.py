"""The vendored files of other projects: where they come from, and their checksums.

`.ci/editor/build` bundles CodeMirror from the packages of a lock; the other files are as published.
Browsers check the same checksums (subresource integrity), so a changed file does not run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class VendoredFile:
    """One file of a package of npm."""

    name: str
    package: str
    path: str
    """In the package."""
    package_integrity: str
    """Of the whole package, as npm publishes it."""
    licence: str
    integrity: str
    """Of the file itself."""


_HTMX: Final = (
    "sha512-Thx/WtpeOQqSrqBCw/A1cwGJGg4UrVa3+sW0GmrM3p4gJgO89e"
    "cH4qtbnyzDDWFvBTqjnIMCgELTNt636dtamA=="
)
_UPLOT: Final = (
    "sha512-KIMVnG68zvu5XXUbC4LQEPnhwOxBuLyW1AHtpm6IKTXImkbLgk"
    "My+jabjLgSLMasNuGGzQm/ep3tOkyTxpiQIw=="
)
_CODEMIRROR: Final = (
    "sha512-HHsfpqFeHyXLs983pSRe38Xajs0vFWZQ2BuX0m7Ki8w3jZ5iD8"
    "cuR3lBz2/5/X53Dhf32SBHKh6rtSTB6tKeGw=="
)
HTMX: Final = VendoredFile(
    "htmx-2.0.11.min.js",
    "htmx.org@2.0.11",
    "dist/htmx.min.js",
    _HTMX,
    "htmx-LICENSE.txt",
    "sha384-2OatzQy1H+Zd/IIrjr1TcuDGqLXeHhbooAyJY1KdQMKnr4LZ22k31GBLdYKHmVjg",
)
UPLOT: Final = VendoredFile(
    "uplot-1.6.32.iife.min.js",
    "uplot@1.6.32",
    "dist/uPlot.iife.min.js",
    _UPLOT,
    "uplot-LICENSE.txt",
    "sha384-Gx3t0zdBAuQOuvvmaLZj7HKEiSgWTAs+VdtNY7wt19QDPTDQjFIwAuXDj0zeN00c",
)
UPLOT_STYLE: Final = VendoredFile(
    "uplot-1.6.32.min.css",
    "uplot@1.6.32",
    "dist/uPlot.min.css",
    _UPLOT,
    "uplot-LICENSE.txt",
    "sha384-IfV0B7MIOYuO95kO9G5ySKPz/85zqFNOAs8iy4tkK5zd9izhJAB8b7lHrwYqqmYE",
)
CODEMIRROR: Final = VendoredFile(
    "codemirror-6.43.15.min.js",
    "@codemirror/view@6.43.15",
    "dist/index.js",
    _CODEMIRROR,
    "codemirror-LICENSE.txt",
    "sha384-EKEcGPPddSmao+K036qSi2JEhon333mIc6Oql2hoRkcEwUiMiST03RBQURkd6LWH",
)
"""One of the bundled packages stands for all: `.ci/editor/package-lock.json` names the others."""
VENDORED: Final = (HTMX, UPLOT, UPLOT_STYLE, CODEMIRROR)
