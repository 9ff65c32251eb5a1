"""Serve job: the arguments of `jobs/serve.py`, and its report at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from sparklog.spark.jobs.addresses import Place, outward_address, place_of
from sparklog.spark.schedule.schedule import Schedule
from sparklog.spark.serve.broker_plan import (
    PLAINTEXT,
    BrokerEntry,
    BrokerPlan,
    ControlPoint,
    MoreListener,
)

JOBS_STOP_TIMEOUT_S: Final = 15.0
"""For upkeep jobs to end, and for brokers to take what the jobs' history says of that."""


@dataclass(frozen=True, slots=True)
class ServeJob:
    """The brokers to run, and their listeners."""

    root: str
    brokers: int = 3
    first_broker_id: int = 1
    application: str | None = None
    """The name under which it takes ids from the log; None: `first_broker_id` says them."""
    listen_host: str | None = None
    """None: as `addresses.place_of` says."""
    port: int = 9092
    """Of the first broker; the next ones count on. 0: any free port."""
    advertised_host: str | None = None
    rack: str | None = None
    rack_variable: str | None = None
    metrics_port: int = 0
    """Counts on as ports do; 0: any free port, -1: no page."""
    log_level: str = "INFO"
    log_levels: str = ""
    """Levels of packages, as `SPARKLOG_LOG` gives them."""
    configs: Mapping[str, str] = field(default_factory=dict)
    master: str | None = None
    """Spark's master unless spark-submit gives one; None: executors on this machine."""
    ready_file: Path | None = None
    drain_timeout_s: int = 30
    control_port: int = 0
    connect_port: int | None = None
    """The port on which Spark Connect accepts queries; None: none."""
    schedule: Schedule | None = None
    """Upkeep jobs to run beside the brokers; None: none."""
    jobs_metrics_port: int = 0
    """Of the driver's page about them; 0: any free port, -1: no page."""
    json: bool = False
    protocol: str = PLAINTEXT
    """Security protocol of the brokers' listener."""
    more_listeners: tuple[MoreListener, ...] = ()
    """Further listeners of the first broker; their ports count on, too."""

    @property
    def default_master(self) -> str:
        """Return executors on this machine: one per broker, and one for jobs and queries if any."""
        others = self.schedule is not None or self.connect_port is not None
        return f"local-cluster[{self.brokers + others},2,1024]"

    @property
    def broker_ids(self) -> range:
        """Return the brokers' ids."""
        return range(self.first_broker_id, self.first_broker_id + self.brokers)

    def with_ids_of_log(self) -> ServeJob:
        """Return the job with the ids that the log gives its application, if it has a name.

        Raises:
            Unavailable, OutcomeUnknown: the store does not answer. InvalidRequest: no ids are left.
        """
        if self.application is None:
            return self
        from sparklog.cluster.log import open_log  # noqa: PLC0415 - most starts need none

        with open_log(self.root) as log:
            ids = log.take_broker_ids(self.application, self.brokers)
        return replace(self, first_broker_id=ids.start)

    def place(self, master: str) -> Place:
        """Return where brokers listen and what they advertise."""
        return place_of(master, self.listen_host, self.advertised_host, outward_address)

    def plans(self, entry: BrokerEntry, control: ControlPoint, master: str) -> list[BrokerPlan]:
        """Return a plan for every broker."""
        place = self.place(master)
        return [
            BrokerPlan(
                broker_id=broker_id,
                root=self.root,
                entry=entry,
                control=control,
                listen_host=place.listen_host,
                port=self.port + index if self.port else 0,
                advertised_host=place.advertised_host,
                rack=self.rack,
                rack_variable=self.rack_variable,
                metrics_port=self.metrics_port + index if self.metrics_port > 0
                else self.metrics_port,
                protocol=self.protocol,
                more_listeners=tuple(
                    replace(one, port=one.port + index if one.port else 0)
                    for one in self.more_listeners
                ),
                log_level=self.log_level,
                log_levels=self.log_levels,
                configs=self.configs,
            )
            for index, broker_id in enumerate(self.broker_ids)
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class ServeReport:
    """Its result at the end."""

    seconds: float
    brokers: int
    drained: int
    ended_by: int | None
    printed: bool = False

    def to_text(self) -> str:
        """Return the report as a line."""
        return f"served for {self.seconds:.0f} s; {self.drained} of {self.brokers} brokers drained"

    def to_json(self) -> str:
        """Return the report as one JSON object."""
        document = {
            "event": "ended",
            "seconds": round(self.seconds, 3),
            "brokers": self.brokers,
            "drained": self.drained,
        }
        return json.dumps(document, separators=(",", ":"))
