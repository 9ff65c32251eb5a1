"""Kafka's own tools, each run in a JVM of its own, against any server of Kafka's protocol.

tool = KafkaTools(brokers.bootstrap)
tool("TopicCommand", "--describe", "--topic", "t")   # the lines it prints
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.peers.jars import KAFKA_BROKER
from tests.peers.kafka import java

TOOLS = "org.apache.kafka.tools."
QUICK_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""For what runs a second or two."""
TIMEOUT_S = 400.0


class ToolFailed(RuntimeError):
    """A tool ended with an error, or without what it should print; its output is in the message."""


@dataclass(frozen=True)
class KafkaTools:
    """The tools that take `--bootstrap-server`, for one cluster."""

    bootstrap: str

    def __call__(self, name: str, *arguments: str) -> list[str]:
        """Run one; return the lines it prints.

        Raises:
            ToolFailed: it ended with an error.
        """
        return run_tool(name, "--bootstrap-server", self.bootstrap, *arguments).splitlines()


def properties_text(settings: Mapping[str, str]) -> str:
    """Return settings as a file of Java's properties; a backslash in a value is written twice."""
    lines = (f"{name}={text}\n" for name, text in settings.items())
    return "".join(lines).replace("\\", "\\\\")


def run_tool(
    name: str, *arguments: str, jvm: Sequence[str] = QUICK_JVM, timeout_s: float = TIMEOUT_S
) -> str:
    """Run a tool, named as below `org.apache.kafka.tools` or in full; return what it prints.

    Raises:
        ToolFailed: it ended with an error.
    """
    main_class = name if name.startswith(("kafka.", "org.")) else TOOLS + name
    done = subprocess.run(
        [java(), *jvm, "-cp", KAFKA_BROKER.class_path(), main_class, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        raise ToolFailed(f"{main_class} failed. output={(done.stdout + done.stderr)[-3000:]}")
    return done.stdout
