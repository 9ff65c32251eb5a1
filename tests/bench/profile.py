"""Samples one broker while producers load it: `make profile`.

py-spy starts the broker and samples its threads a hundred times a second, without changing it. The
result opens in https://www.speedscope.app, or in any viewer of that format. Native frames (Arrow,
codecs) are left out where the platform does not unwind them.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

from confluent_kafka import Producer

import sparklog
from tests.harness.waiting import eventually

TOPIC = "profile"
LISTENS = re.compile(r"listening on (\S+)")
VALUE = b"x" * 100
STOP_S = 60


def profile(output: Path, seconds: float, partitions: int) -> int:
    """Sample a broker for `seconds` of produce load; return how many records it took."""
    output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="sparklog-profile-") as folder:
        root, log = f"{folder}/root", Path(folder, "broker.log")
        sparklog.open_log(root).create_topic(TOPIC, partitions=partitions)
        broker = [sys.executable, "-m", "sparklog.broker.main", "--root", root]
        broker += ["--broker-id", "1", "--listener", "127.0.0.1:0"]
        sampler = [str(Path(sys.executable).with_name("py-spy")), "record", "--rate", "100"]
        sampler += ["--format", "speedscope", "--output", str(output), "--", *broker]
        with log.open("wb") as out, subprocess.Popen(sampler, stdout=out, stderr=out) as process:
            try:
                eventually(lambda: LISTENS.search(log.read_text()), "the broker listens")
                (address,) = LISTENS.findall(log.read_text())
                return _load(address, seconds)
            finally:
                # The sampler writes its file when the broker, its child, has ended.
                for child in (
                    Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
                ):
                    os.kill(int(child), signal.SIGTERM)
                process.wait(STOP_S)


def _load(address: str, seconds: float) -> int:
    producer = Producer({"bootstrap.servers": address, "linger.ms": 5})
    until, sent = monotonic() + seconds, 0
    while monotonic() < until:
        try:
            producer.produce(TOPIC, VALUE)
            sent += 1
        except BufferError:
            producer.poll(0.1)
    left = producer.flush(STOP_S)
    return sent - left


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="make profile", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--partitions", type=int, default=6)
    parser.add_argument("--output", type=Path, default=Path("bench-results/broker.speedscope.json"))
    given = parser.parse_args(argv)
    records = profile(given.output, given.seconds, given.partitions)
    sys.stdout.write(f"{records} records in {given.seconds:g} s; profile in {given.output}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
