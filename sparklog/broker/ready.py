"""What a broker tells whoever started it once it serves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ready:
    """A broker that serves: where clients reach it, and which of its lives this is."""

    broker_id: int
    incarnation: int
    host: str
    """As advertised to clients."""
    port: int
    metrics_port: int | None = None
    """None: it has no metrics page."""
