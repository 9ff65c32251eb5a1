"""State of an application's brokers: events in, lines for people and programs out.

Pure, and used by one thread. An event is a broker's id and a mapping with `event`:
  - `submitted`: its Spark job was handed in
  - `started`: its task runs: pid, executor_host
  - `ready`: it serves: incarnation, host, port, metrics_port, cluster_id, began_log
  - `note`: text: something an operator should know
  - `drained`: it has handed over what it led, and ends
  - `hung up`: its line broke: it ended, or its process was killed
  - `ended`: its job is over: outcome, message, again_in_s
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sparklog.broker.runtime.environment import Address
from sparklog.broker.runtime.identity import new_log_text
from sparklog.core.counters import Snapshot
from sparklog.spark.serve.broker_task import DRAINED, KILLED, REFUSED

WAITING: Final = ("lost", "drained", "ended")
"""States of a broker whose process has ended."""
KILLED_TEXT = "its process has ended; it is started again"


@dataclass(slots=True)
class BrokerStatus:
    """One broker."""

    broker_id: int
    state: str = "waiting"
    """`waiting`, `starting`, `ready`, `drained`, `lost`, `ended` or `refused`."""
    address: str | None = None
    """The address at which it serves, or served last."""
    facts: dict[str, Any] = field(default_factory=dict)
    starts: int = 0
    line: int | None = None
    """Of its process that started last: what an earlier one still says is old news."""
    drained: bool = False
    """It ended in good order, after it had been asked to."""


@dataclass(slots=True)
class MetricsPages:
    """The pages for Prometheus of the brokers that serve, for a reader in another thread.

    Beside them are the requests of Spark's Python workers, which have no page.
    """

    by_broker: Mapping[str, str] = field(default_factory=dict)
    """HOST:PORT by a name for people. It is replaced as a whole."""
    task_requests: Callable[[], Snapshot] = dict
    """Returns the workers' requests to the store, from the start of Spark on."""

    def requests_of_queries(self) -> Snapshot:
        """Return the requests that Spark's Python workers reported."""
        return self.task_requests()


@dataclass(frozen=True, slots=True)
class Notice:
    """Something worth telling."""

    text: str
    document: Mapping[str, Any]


class Serving:
    """All brokers of this application."""

    def __init__(self, broker_ids: Iterable[int]) -> None:
        """Begin with brokers that wait."""
        self.brokers = {broker_id: BrokerStatus(broker_id) for broker_id in broker_ids}
        self._announced: str | None = None
        self.stopping = False

    @property
    def all_ready(self) -> bool:
        """Return whether every broker serves."""
        return all(broker.state == "ready" for broker in self.brokers.values())

    @property
    def waits(self) -> bool:
        """Return whether a broker whose process has ended has no other one yet."""
        return bool(self.ids_in(*WAITING))

    def ids_in(self, *states: str) -> list[int]:
        """Return the brokers that are in one of these states."""
        return [one.broker_id for one in self.brokers.values() if one.state in states]

    @property
    def never_ready(self) -> list[int]:
        """Return the brokers that have not served yet, and still may."""
        return [
            broker.broker_id
            for broker in self.brokers.values()
            if broker.address is None and broker.state != "refused"
        ]

    @property
    def refused(self) -> bool:
        """Return whether a broker will not start because its settings are wrong."""
        return any(broker.state == "refused" for broker in self.brokers.values())

    @property
    def bootstrap_servers(self) -> str:
        """Return the addresses of all brokers that have served, as clients take them."""
        return ",".join(b.address for b in self.brokers.values() if b.address is not None)

    @property
    def metrics_pages(self) -> dict[str, str]:
        """Return HOST:PORT of the pages for Prometheus of the brokers that serve, by a name.

        A broker that starts again has another name, unless its page has the same address.
        """
        pages = {
            one.broker_id: str(Address(one.facts["host"], one.facts["metrics_port"]))
            for one in self.brokers.values()
            if one.state == "ready" and one.facts.get("metrics_port")
        }
        return {f"broker {broker_id} ({page})": page for broker_id, page in pages.items()}

    def document(self) -> dict[str, Any]:
        """Return everything, for the ready file."""
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "brokers": [
                {"broker": broker.broker_id, "state": broker.state, **broker.facts}
                for broker in self.brokers.values()
            ],
        }

    def handle(self, broker_id: int, event: Mapping[str, Any]) -> list[Notice]:
        """Handle an event, and return the notices to print."""
        broker = self.brokers.get(broker_id)
        if broker is None:
            return []
        kind = event.get("event")
        before = broker.state
        if kind == "started":
            broker.state, broker.facts = "starting", _facts(event)
            broker.line = event.get("line")
            broker.starts += 1
            return []
        if kind in ("ready", "drained", "hung up") and event.get("line") != broker.line:
            return []
        if kind == "ready":
            return self._ready(broker, event)
        if kind == "note":
            text = str(event.get("text", ""))
            return [Notice(f"note: {text}", {"event": "note", "broker": broker_id, "text": text})]
        if kind == "drained":
            broker.state = "drained"
            return []
        if kind == "hung up" and before in ("starting", "ready"):
            return self._hung_up(broker, before)
        if kind == "ended":
            return self._ended(broker, before, event)
        return []

    def _ready(self, broker: BrokerStatus, event: Mapping[str, Any]) -> list[Notice]:
        broker.state = "ready"
        broker.facts |= _facts(event)
        broker.address = str(Address(event["host"], event["port"]))
        metrics = event.get("metrics_port")
        page = f", metrics at http://{Address(event['host'], metrics)}/metrics" if metrics else ""
        again = f", start {broker.starts}" if broker.starts > 1 else ""
        lines = [
            _notice(
                broker, "ready",
                f"ready at {broker.address} (pid {broker.facts.get('pid')}{again}){page}",
                broker.facts,
            )
        ]  # fmt: skip
        if event.get("began_log"):
            cluster_id = event["cluster_id"]
            text = new_log_text(cluster_id)
            lines.append(_notice(broker, "new_log", text, {"cluster_id": cluster_id}))
        if self.all_ready and self._announced != self.bootstrap_servers:
            self._announced = self.bootstrap_servers
            lines.append(
                Notice(
                    f"serving: {self.bootstrap_servers}",
                    {"event": "serving", **self.document()},
                )
            )
        return lines

    def _hung_up(self, broker: BrokerStatus, before: str) -> list[Notice]:
        broker.state = "lost"
        if self.stopping or before != "ready":
            return []
        return [_notice(broker, "lost", KILLED_TEXT)]

    def _ended(self, broker: BrokerStatus, before: str, event: Mapping[str, Any]) -> list[Notice]:
        outcome, message = event.get("outcome"), str(event.get("message", ""))
        broker.state = "refused" if outcome == REFUSED else "ended"
        if self.stopping:
            good = broker.drained = outcome == DRAINED
            text = "drained" if good else f"ended without draining: {message}"
            return [_notice(broker, "stopped", text, {"drained": good})]
        if outcome == DRAINED:
            return [_notice(broker, "drained", "drained; it is started again")]
        if outcome == KILLED and before in ("ready", "lost"):
            broker.state = "lost"
            return [_notice(broker, "lost", KILLED_TEXT)] if before == "ready" else []
        wait_s = event.get("again_in_s", 0.0)
        again = "" if outcome == REFUSED else f"; again in {wait_s:g} s"
        return [_notice(broker, "failed", f"{message}{again}", {"message": message})]


def _notice(
    broker: BrokerStatus, event: str, text: str, more: Mapping[str, Any] | None = None
) -> Notice:
    document = {"event": event, "broker": broker.broker_id, **(more or {})}
    return Notice(f"broker {broker.broker_id}: {text}", document)


def _facts(event: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in event.items() if key not in ("event", "line")}
