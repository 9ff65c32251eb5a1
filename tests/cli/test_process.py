"""The command as a process of its own: what only a process has."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.cluster.log import Log, open_log
from tests.harness.waiting import eventually

DEADLINE_S = 300
COMMAND = [sys.executable, "-m", "sparklog.cli"]
MODULES_MAX = 450
"""380 are known, most of them numpy's and Arrow's: a client for Kafka alone would be 100 more."""


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "root")


@pytest.fixture
def log(root: str) -> Iterator[Log]:
    with open_log(root) as opened:
        yield opened


def run(root: str, *argv: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*COMMAND, *argv],
        input=stdin,
        capture_output=True,
        timeout=DEADLINE_S,
        env=_environment(root),
        check=False,
    )


@contextmanager
def started(root: str, *argv: str) -> Iterator[subprocess.Popen[bytes]]:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*COMMAND, *argv], stdin=pipe, stdout=pipe, stderr=pipe, env=_environment(root)
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _environment(root: str) -> dict[str, str]:
    return {**os.environ, "SPARKLOG_ROOT": root, "PYTHONUNBUFFERED": ""}


def append(log: Log, *values: str) -> None:
    rows = pa.array([value.encode() for value in values], pa.binary())
    log.partition("t", 0).append([pa.RecordBatch.from_pydict({"value": rows})])


def test_console_script_works_from_create_to_delete(root: str) -> None:
    assert run(root, "topics", "--create", "--topic", "t").stdout == b"Created topic t.\n"
    assert run(root, "produce", "--topic", "t", stdin=b"a\nb\n").returncode == 0
    consumed = run(root, "consume", "--topic", "t", "--from-beginning", "--timeout-ms", "0")
    assert (consumed.returncode, consumed.stdout) == (0, b"a\nb\n")
    assert run(root, "get-offsets", "--topic", "t").stdout == b"t:0:2\n"
    failed = run(root, "topics", "--describe", "--topic", "nope")
    assert (failed.returncode, failed.stdout) == (1, b"")
    assert failed.stderr.startswith(b"error: ")
    assert failed.stderr.count(b"\n") == 1
    assert run(root, "topics", "--describe", "--json").stdout.startswith(b'{"topic":"t"')
    assert run(root, "topics", "--delete", "--topic", "t").returncode == 0


def test_consumer_prints_records_appended_while_it_runs(root: str, log: Log) -> None:
    log.create_topic("t")
    append(log, "old")
    with started(root, "consume", "--topic", "t", "--from-beginning") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"old\n"
        for value in ("new", "newer"):
            append(log, value)
            assert process.stdout.readline() == value.encode() + b"\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=DEADLINE_S)
        assert process.returncode == 130
        assert errors == b"Processed a total of 3 messages\n"


def test_a_producer_appends_while_its_input_stays_open(root: str, log: Log) -> None:
    log.create_topic("t")
    with started(root, "produce", "--topic", "t", "--timeout", "10") as process:
        assert process.stdin is not None
        process.stdin.write(b"first\n")
        process.stdin.flush()

        def appended() -> bool:
            assert process.poll() is None
            return log.partition("t", 0).view().end_offset > 0

        eventually(appended, "the first record", DEADLINE_S)
        process.stdin.write(b"second\n")
        process.stdin.close()
        assert process.wait(DEADLINE_S) == 0
    assert log.partition("t", 0).view().end_offset == 2


def test_a_person_typing_is_prompted_and_does_not_wait(root: str, log: Log) -> None:
    log.create_topic("t")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "produce", "--topic", "t"],
        stdin=theirs,
        stdout=theirs,
        stderr=subprocess.PIPE,
        env=_environment(root),
    )
    with process:
        os.close(theirs)
        try:
            assert os.read(ours, 1) == b">"
            os.write(ours, b"typed\n")
            shown = b""
            while not shown.endswith(b">"):
                shown += os.read(ours, 100)
            assert shown == b"typed\r\n>"
            assert log.partition("t", 0).view().end_offset == 1
            os.write(ours, b"\x04")
            assert process.wait(DEADLINE_S) == 0
        finally:
            process.kill()
            os.close(ours)


def test_interrupted_producer_appends_the_lines_it_has_read(root: str, log: Log) -> None:
    log.create_topic("t")
    with started(root, "produce", "--topic", "t", "--timeout", "600000", "--json") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"only\n")
        process.stdin.flush()
        _wait_until_read(process)
        _interrupt(process)
        assert b'"count":1' in process.stdout.readline()
        assert process.returncode == 130
    assert log.partition("t", 0).view().end_offset == 1


def _interrupt(process: subprocess.Popen[bytes]) -> None:
    """Press Ctrl-C until it works: Python drops an interrupt that falls into a finaliser."""
    for _ in range(DEADLINE_S // 5):
        process.send_signal(signal.SIGINT)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            continue
        return
    raise AssertionError("the process does not end on Ctrl-C")


def _wait_until_read(process: subprocess.Popen[bytes]) -> None:
    """Wait until the pipe is empty and the process sleeps on, waiting for more of it."""
    pipe = process.stdin
    assert pipe is not None
    status = Path(f"/proc/{process.pid}/status")
    before = ""

    def waits() -> bool:
        nonlocal before
        assert process.poll() is None
        (left,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0" * 4))
        last, before = before, status.read_text()
        # The same number of context switches: it has not run between two looks.
        return left == 0 and "State:\tS" in before and _switches(before) == _switches(last)

    eventually(waits, "the process waits for more input", DEADLINE_S, every_s=0.2)


def _switches(status: str) -> list[str]:
    return [line for line in status.splitlines() if "ctxt_switches" in line]


def test_a_reader_that_goes_away_ends_the_consumer_quietly(root: str, log: Log) -> None:
    log.create_topic("t")
    append(log, *(f"value-{n}" for n in range(100_000)))
    with started(root, "consume", "--topic", "t", "--from-beginning") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == b"value-0\n"
        process.stdout.close()
        errors = process.stderr.read()
        assert process.wait(DEADLINE_S) == 141
        assert b"Traceback" not in errors
        assert b"Exception ignored" not in errors


@pytest.mark.parametrize(
    "argv",
    [
        ["consume", "--topic", "t", "--from-beginning", "--max-messages", "320"],
        ["dump-log", "--topic", "t", "--print-data-log"],
    ],
)
def test_a_large_partition_takes_no_more_memory_than_a_small_one(
    root: str, log: Log, argv: list[str]
) -> None:
    """320 MiB of records, stored as forty references to one object of 8 MiB."""
    log.create_topic("t")
    partition = log.partition("t", 0)
    values = pa.array([os.urandom(1_000_000) for _ in range(8)], pa.binary())
    staged = partition.stage([pa.RecordBatch.from_pydict({"value": values})])
    partition.append_staged([staged])
    small_kib = peak_memory_kib(root, argv)
    partition.append_staged([staged] * 39)
    assert peak_memory_kib(root, argv) < small_kib + 64 * 1024


def peak_memory_kib(root: str, argv: list[str]) -> int:
    if "--max-messages" in argv:
        argv = [*argv, "--timeout-ms", "0"]
    process = subprocess.Popen(
        [*COMMAND, *argv],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=_environment(root),
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_maxrss


def test_a_command_loads_neither_spark_nor_a_compiler(root: str, log: Log) -> None:
    log.create_topic("t")
    append(log, "x")
    code = (
        "import sys; from sparklog.cli.main import main\n"
        "assert main(['topics', '--describe']) == 0\n"
        "assert main(['consume', '--topic', 't', '--from-beginning', '--timeout-ms', '0']) == 0\n"
        "heavy = {'pyspark', 'delta', 'numba', 'pandas', 's3fs', 'fsspec', 'asyncio'}\n"
        "print(sorted(heavy & set(sys.modules)), file=sys.stderr)\n"
    )
    assert last_line(root, code) == "[]"


def test_starting_imports_little(root: str) -> None:
    """A command spends its start on imports; their number does not depend on the machine."""
    code = (
        "import sys; from sparklog.cli.main import main\n"
        "assert main(['topics', '--list']) == 0\n"
        "print(len(sys.modules), file=sys.stderr)\n"
    )
    assert int(last_line(root, code)) < MODULES_MAX


def last_line(root: str, code: str) -> str:
    """Run a program that succeeds, and return the last line of its stderr."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env=_environment(root), check=True,
        timeout=DEADLINE_S, text=True,
    )  # fmt: skip
    return done.stderr.splitlines()[-1]
