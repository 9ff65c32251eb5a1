"""Request files: the counts of all processes, also of those that ended, and of one root alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.core.counters import RequestCount, Snapshot
from sparklog.spark.access import log_access
from sparklog.spark.access.request_files import (
    FILE_BYTES_MAX,
    FOLDER_VARIABLE,
    RequestFile,
    RequestFolder,
    root_key,
)
from tests.harness.waiting import eventually

PUTS: Snapshot = {("put", "orders"): RequestCount(2, 20), ("get", "orders"): RequestCount(3, 300)}
MORE: Snapshot = {("put", "orders"): RequestCount(5, 50), ("get", "orders"): RequestCount(3, 300)}
OTHER: Snapshot = {("put", "orders"): RequestCount(900, 9000)}


def text_of(root: str, requests: list[int]) -> str:
    return json.dumps({root_key(root): {"orders": {"put": requests}}})


def test_counts_of_a_process_are_written_again_when_they_grow(tmp_path: Path) -> None:
    root, found = str(tmp_path / "log"), [PUTS]
    file = RequestFile(tmp_path, lambda: {root: lambda: found[0], "s3://else/log": lambda: OTHER})
    folder = RequestFolder(tmp_path, (tmp_path / "log").as_uri())
    assert folder.requests() == {}
    file.write()
    assert folder.requests() == PUTS
    found[0] = MORE
    file.write()
    assert folder.requests() == folder.requests() == MORE


def test_counts_of_an_ended_process_stay_and_its_file_goes(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (tmp_path / f"{ended.pid}-a.json").write_text(text_of("s3://b/log", [2, 20]))
    (tmp_path / f"{os.getpid()}-b.json").write_text(text_of("s3://b/log/", [1, 10]))
    folder = RequestFolder(tmp_path, "s3://b/log")
    assert folder.requests() == folder.requests() == {("put", "orders"): RequestCount(3, 30)}
    assert [path.name for path in tmp_path.iterdir()] == [f"{os.getpid()}-b.json"]


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"a": 1}', text_of("s3://b/log", [-1, 2]), " " * (FILE_BYTES_MAX + 1)]
)
def test_file_without_counts_adds_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / f"{os.getpid()}-a.json").write_text(text)
    assert RequestFolder(tmp_path, "s3://b/log").requests() == {}


def test_process_of_spark_reports_queries_and_leaves_out_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, requests = str(tmp_path / "log"), tmp_path / "requests"
    requests.mkdir()
    monkeypatch.setenv(FOLDER_VARIABLE, str(requests))
    log_access.job_log(root).create_topic("orders", 1)
    folder = RequestFolder(requests, root)
    assert folder.requests() == {}
    log = log_access.shared_log(root)
    log.refresh()
    counted = log.requests()
    assert counted
    assert eventually(folder.requests, "the process writes its file") == counted
