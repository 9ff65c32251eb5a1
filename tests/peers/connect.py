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

from tests.harness.waiting import eventually
from tests.peers.kafka_tools import properties_text

DISTRIBUTED = "org.apache.kafka.connect.cli.ConnectDistributed"
MIRROR_MAKER = "org.apache.kafka.connect.mirror.MirrorMaker"
PRESET = Path(__file__).resolve().parents[2] / "conf" / "mirror-maker.properties"
ANY_PORT = "http://127.0.0.1:0"
LISTENS = re.compile(r"REST server listening at (http://127\.0\.0\.1:\d+)/")
STARTING = (404, 409, 500, 503)
"""Answers of a worker before it knows its connectors, or while it takes them over."""
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
    properties.write_text(properties_text(settings))
    return f"-Dlog4j2.configurationFile={logging}", main_class, str(properties)


def errors(log: Path) -> list[str]:
    """Return the lines at which a program complained of an error."""
    lines = log.read_text(errors="replace").splitlines()
    return [line for line in lines if "] ERROR " in line[:40]]


def mirroring(
    old: str, new: str, topics: Sequence[str], group: str, more: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the project's preset for a migration, for these topics, with short intervals.

    `more` has further settings, whose names begin with the cluster's.
    """
    run = uuid4().hex[:6]  # MirrorMaker keeps what it did under the names of clusters

    def named(text: str) -> str:
        return re.sub(r"\b(old|new)\b", rf"\1-{run}", text)

    often = ("refresh.topics", "refresh.groups", "sync.group.offsets", "emit.checkpoints",
             "sync.topic.configs", "sync.topic.acls")  # fmt: skip
    settings = preset()
    factors = [name for name in settings if name.endswith("replication.factor")]
    settings |= {
        "clusters": named(settings["clusters"]),
        "old.bootstrap.servers": old,
        "new.bootstrap.servers": new,
        "old->new.topics": ",".join(topics),
        "old->new.groups": group,
        **dict.fromkeys(factors, "2"),
        **{f"{name}.interval.seconds": "2" for name in often},
        **(more or {}),
    }
    return {named(name): value for name, value in settings.items()}


def preset() -> dict[str, str]:
    """Return what `conf/mirror-maker.properties` says."""
    lines = [line for line in PRESET.read_text().splitlines() if line and line[0] != "#"]
    return {name.strip(): value.strip() for name, value in (line.split("=", 1) for line in lines)}


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
        """Return True if it has given up no task."""
        said = self.log.read_text(errors="replace")
        assert GIVEN_UP not in said, said[-5000:]
        return True

    def runs(self, connector: str) -> bool:
        """Return True if a connector and its one task run."""
        status = self.ask(f"/{connector}/status") or {"connector": {"state": ""}, "tasks": []}
        states = [part["state"] for part in (status["connector"], *status["tasks"])]
        return states == ["RUNNING", "RUNNING"]
