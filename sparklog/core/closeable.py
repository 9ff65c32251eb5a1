"""Closeable: objects that a `with` block closes at its end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Closeable(ABC):
    """An object to close; `with` returns it, and closes it however the block ends."""

    @abstractmethod
    def close(self) -> None:
        """Release its resources. Repeated calls have no effect."""

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()
