"""Counts the modules and functions of a produce request's way through a broker.

    make produce-path

A broker runs in a thread of this process, and partitions have one replica. A profiler sees each
function of sparklog that the broker calls between the arrival of a plain produce request and its
answer. Functions that also run while no client sends anything do not count. Warm-up comes first.
The partition is not flushed meanwhile: an idle broker then trims its log, on a produce's own way.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from uuid import uuid4

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

import sparklog
from tests.interop.brokers import Brokers

TOPIC = "path"
WARM_S = 3.0
IDLE_S = 5.0
REQUESTS = 50
START_S = 30.0
PACKAGE = str(Path(sparklog.__file__).parent)
TESTING = str(Path(PACKAGE, "testing"))
"""Its stores inject faults into brokers of this process; a broker beside others has none."""

Called = tuple[str, str]
"""Module and qualified name of a function."""


class CallRecorder:
    """Notes the functions of sparklog that the threads of a broker call, while it is asked to."""

    def __init__(self) -> None:
        """Note nothing yet."""
        self.called: set[Called] | None = None

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """See one event; only calls count."""
        called = self.called
        if called is None or event != "call":
            return
        code = frame.f_code
        if code.co_filename.startswith(PACKAGE) and not code.co_filename.startswith(TESTING):
            module = code.co_filename.removeprefix(PACKAGE).strip("/").removesuffix(".py")
            called.add((module.replace("/", "."), code.co_qualname))

    def during(self, seconds: float) -> set[Called]:
        """Return the functions that are called in so long."""
        found: set[Called] = set()
        self.called = found
        time.sleep(seconds)  # calls are recorded for a duration, idle ones too
        self.called = None
        return found


def measure() -> set[Called]:
    """Return the functions on the way of a plain produce request."""
    recorder = CallRecorder()
    threading.setprofile(recorder)
    try:
        with Brokers(f"memory://{uuid4()}") as brokers:
            admin = AdminClient({"bootstrap.servers": brokers.bootstrap})
            topic = NewTopic(TOPIC, 1, config={"flush.ms": "3600000"})
            admin.create_topics([topic])[TOPIC].result(START_S)
            producer = Producer({"bootstrap.servers": brokers.bootstrap, "linger.ms": 0})
            _produce(producer, WARM_S)
            idle = recorder.during(IDLE_S)
            busy: set[Called] = set()
            recorder.called = busy
            for _ in range(REQUESTS):
                producer.produce(TOPIC, b"x" * 100)
                producer.flush(30)
            recorder.called = None
            return busy - idle
    finally:
        threading.setprofile(None)


def _produce(producer: Producer, seconds: float) -> None:
    end_s = time.monotonic() + seconds
    while time.monotonic() < end_s:
        producer.produce(TOPIC, b"x" * 100)
        producer.flush(30)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the counts, and with `--list` each function."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--list", action="store_true", help="print each function")
    args = parser.parse_args(argv)
    found = measure()
    by_module: dict[str, list[str]] = {}
    for module, name in sorted(found):
        by_module.setdefault(module, []).append(name)
    for module, names in by_module.items():
        sys.stdout.write(f"{len(names):4}  {module}\n")
        if args.list:
            sys.stdout.writelines(f"        {name}\n" for name in names)
    sys.stdout.write(f"{len(by_module)} modules, {len(found)} functions\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
