"""Output while Spark's JVM ends."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Thread

import pytest

from sparklog.spark.jobs.jvm_shutdown import await_reader


def test_await_reader_returns_once_the_reader_has_read_all() -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stream, os.fdopen(reading, "rb", buffering=0) as reader:
        stream.write("3 of 3 brokers drained")
        assert not await_reader(stream, timeout_s=0.0), "written, and not read"
        thread = Thread(target=lambda: reader.read(100))
        thread.start()
        assert await_reader(stream, timeout_s=60.0)
        thread.join()


def test_await_reader_returns_at_once_for_a_file_and_without_a_reader(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as file:
        file.write("kept")
        assert await_reader(file, timeout_s=60.0)
    reading, writing = os.pipe()
    os.close(reading)
    stream = os.fdopen(writing, "w")
    stream.write("lost")
    assert await_reader(stream, timeout_s=60.0)
    with pytest.raises(BrokenPipeError):
        stream.close()
