"""Broker plan: the driver gives a broker's task its id, its listener and the driver's address.

Everything here travels to executors, so it is plain and small. Settings go under Kafka's names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from sparklog.broker.runtime.identity import Ready
from sparklog.spark.jobs.addresses import ALL

PLAINTEXT = "PLAINTEXT"


class BrokerEntry(Protocol):
    """Runs one broker in the calling thread, which must be its process' main thread."""

    def __call__(
        self,
        root: str,
        configs: Mapping[str, str],
        *,
        stop: Callable[[], bool],
        ready: Callable[[Ready], None],
        note: Callable[[str], None],
    ) -> None:
        """Serve until `stop()` is true, drain, and return. Raises SparklogError, OSError."""
        ...


@dataclass(frozen=True, slots=True)
class ControlPoint:
    """The address on which the driver listens for its brokers."""

    host: str
    port: int
    token: str
    """Proves to each end that the other one is of this application; it is never sent."""


@dataclass(frozen=True, slots=True)
class MoreListener:
    """A listener of one broker."""

    name: str
    protocol: str
    host: str
    """The interface; empty: as the first listener."""
    port: int
    advertised_host: str = ""
    """Empty: as the first listener."""

    def at(self, host: str) -> str:
        """Return it as Kafka's settings have it, at a host."""
        return f"{self.name}://{_bracketed(host)}:{self.port}"


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    """One broker."""

    broker_id: int
    root: str
    entry: BrokerEntry
    control: ControlPoint
    listen_host: str = ALL
    port: int = 0
    """0: any free port."""
    advertised_host: str | None = None
    """None: the address from which the broker's machine reaches the driver."""
    rack: str | None = None
    rack_variable: str | None = None
    """An environment variable of the executor that names its rack."""
    metrics_port: int = 0
    """-1: no page."""
    protocol: str = PLAINTEXT
    """Security protocol of the listener, which is also its name."""
    more_listeners: tuple[MoreListener, ...] = ()
    log_level: str = "INFO"
    log_levels: str = ""
    """Levels of packages, as `SPARKLOG_LOG` gives them."""
    configs: Mapping[str, str] = field(default_factory=dict)

    def settings(self, own_host: str, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the broker's settings on a machine: `own_host` is how others reach it."""
        host = self.advertised_host or own_host
        own = MoreListener(self.protocol, self.protocol, self.listen_host, self.port)
        listeners = (own, *self.more_listeners)
        settings = {
            "node.id": str(self.broker_id),
            "listeners": ",".join(one.at(one.host or self.listen_host) for one in listeners),
            "advertised.listeners": ",".join(
                one.at(one.advertised_host or host) for one in listeners
            ),
            "metrics.port": str(self.metrics_port),
        }
        if self.more_listeners:
            settings["listener.security.protocol.map"] = ",".join(
                f"{one.name}:{one.protocol}" for one in listeners
            )
            settings["inter.broker.listener.name"] = own.name
        rack = environment.get(self.rack_variable) if self.rack_variable else None
        rack = rack or self.rack
        if rack:
            settings["broker.rack"] = rack
        return {**settings, **self.configs}


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
