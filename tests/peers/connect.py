"""Kafka Connect's own programs: the words after `java`, and what they say.

words = program(DISTRIBUTED, {"bootstrap.servers": …}, folder)
subprocess.Popen(["java", "-cp", KAFKA_CONNECT.class_path(), *words])
"""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.waiting import eventually

DISTRIBUTED = "org.apache.kafka.connect.cli.ConnectDistributed"
MIRROR_MAKER = "org.apache.kafka.connect.mirror.MirrorMaker"
ANY_PORT = "http://127.0.0.1:0"
LISTENS = re.compile(r"REST server listening at (http://127\.0\.0\.1:\d+)/")
STARTING = (404, 409, 500, 503)
"""What a worker answers before it knows its connectors, or while it takes them over."""
GIVEN_UP = "will not recover until manually restarted"
WITHIN_S = 200.0
LOGGING = """<Configuration>
  <Appenders>
    <Console name="out"><PatternLayout pattern="[%d] %p %m (%c)%n%ex"/></Console>
  </Appenders>
  <Loggers><Root level="INFO"><AppenderRef ref="out"/></Root></Loggers>
</Configuration>
"""


def program(main_class: str, settings: Mapping[str, str], folder: Path) -> tuple[str, ...]:
    """Write the files that a program reads; return what starts it, from `java -cp …` on."""
    logging, properties = folder / "connect-log4j2.xml", folder / "connect.properties"
    logging.write_text(LOGGING)
    properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return f"-Dlog4j2.configurationFile={logging}", main_class, str(properties)


def errors(log: Path) -> list[str]:
    """Return the lines at which a program complained of an error."""
    lines = log.read_text(errors="replace").splitlines()
    return [line for line in lines if "] ERROR " in line[:40]]


def mirroring(old: str, new: str, topics: Sequence[str], group: str) -> dict[str, str]:
    """Return the settings of somebody who moves: names stay, each record is there once."""
    run = uuid4().hex[:6]  # MirrorMaker keeps what it did under the names of clusters
    names = {f"old-{run}": old, f"new-{run}": new}
    flow, back = "->".join(names), "->".join(reversed(names))
    internal = ("checkpoints.topic", "heartbeats.topic", "offset-syncs.topic", "offset.storage",
                "status.storage", "config.storage")  # fmt: skip
    often = ("refresh.topics", "refresh.groups", "sync.group.offsets", "emit.checkpoints",
             "sync.topic.configs", "sync.topic.acls")  # fmt: skip
    return {
        "clusters": ",".join(names),
        **{f"{name}.bootstrap.servers": address for name, address in names.items()},
        **{f"{name}.consumer.isolation.level": "read_committed" for name in names},
        f"{flow}.enabled": "true",
        f"{flow}.topics": ",".join(topics),
        f"{flow}.groups": group,
        f"{back}.enabled": "false",
        "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "replication.factor": "2",
        **{f"{name}.replication.factor": "2" for name in internal},
        **{f"{name}.interval.seconds": "2" for name in often},
        "exactly.once.source.support": "enabled",
        "dedicated.mode.enable.internal.rest": "true",
        "listeners": ANY_PORT,
        "sync.group.offsets.enabled": "true",
        "offset.lag.max": "0",
    }


class Worker:
    """The REST interface of a worker that runs."""

    def __init__(self, log: Path) -> None:
        self.log = log

    def ask(self, path: str, body: Any = None) -> Any:
        """Return what it answers, or nothing while it does not serve: PUT a body, else GET."""
        at = LISTENS.search(self.log.read_text(errors="replace"))
        if at is None:
            return None
        request = urllib.request.Request(
            f"{at[1]}/connectors{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method="GET" if body is None else "PUT",
        )
        try:
            with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                if error.code not in STARTING:
                    raise
            return None

    def make(self, connector: str, settings: Mapping[str, str]) -> None:
        """Make a connector, and wait until it runs."""
        path = f"/{connector}/config"
        eventually(lambda: self.ask(path, settings), f"{connector} is made", WITHIN_S, every_s=0.5)
        eventually(lambda: self.runs(connector), f"{connector} runs", WITHIN_S, every_s=0.5)

    def works(self) -> bool:
        """Tell that it has given up no task."""
        said = self.log.read_text(errors="replace")
        assert GIVEN_UP not in said, said[-5000:]
        return True

    def runs(self, connector: str) -> bool:
        """Tell whether a connector and its one task run."""
        status = self.ask(f"/{connector}/status") or {"connector": {"state": ""}, "tasks": []}
        states = [part["state"] for part in (status["connector"], *status["tasks"])]
        return states == ["RUNNING", "RUNNING"]
