"""Hides optional modules from libraries that import them where they are installed, and pay for it.

The library then works as where the module is not installed. Modules that the process has loaded
already stay visible.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class _Hiding(MetaPathFinder):
    """Answers that some modules are not installed."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in self._names:
            raise ModuleNotFoundError(f"{fullname} is hidden here", name=fullname)
        return None


@contextmanager
def hidden(*names: str) -> Iterator[None]:
    """Let imports of these top-level modules fail, as if they were not installed."""
    hiding = _Hiding(frozenset(names))
    sys.meta_path.insert(0, hiding)
    try:
        yield
    finally:
        sys.meta_path.remove(hiding)
