"""Tasks are started where their errors are retrieved; see `broker/runtime/environment.py`."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

from sparklog.broker.runtime.diagnostics import LOG_FORMAT
from tests.asyncio_errors import OpenLogs, lines_of
from tests.tidy.tree import Source, python_sources

STARTS = {"create_task", "ensure_future"}
MAY_START = {
    "sparklog/broker/runtime/environment.py",  # where it is done for all others
    "sparklog/broker/network/connection.py",  # on each request's way; its work catches errors
    "sparklog/broker/network/advertised_address.py",  # errors are defects to be logged
}


def bare_starts(source: Source) -> list[str]:
    """Return where a file starts tasks by asyncio's own means."""
    calls = (node for node in ast.walk(source.syntax()) if isinstance(node, ast.Call))
    names = ((call, ast.unparse(call.func).rpartition(".")[2]) for call in calls)
    return [f"{source.path}:{call.lineno}" for call, name in names if name in STARTS]


def test_tasks_are_started_by_spawn_or_in_a_scope() -> None:
    sources = [s for s in python_sources("sparklog") if not s.path.startswith("sparklog/testing/")]
    found = [where for s in sources if s.path not in MAY_START for where in bare_starts(s)]
    assert found == [], "use task_scope.spawn or TaskScope"


def test_a_bare_start_is_found() -> None:
    text = "asyncio.ensure_future(work())\nspawn(work())\nloop.create_task(work())\n"
    assert bare_starts(Source("a.py", text)) == ["a.py:1", "a.py:3"]


BAD_PROGRAM = f"""
import asyncio, gc, logging
logging.basicConfig(format={LOG_FORMAT!r})
async def fail(): raise OSError
async def start():
    failed = asyncio.ensure_future(fail())
    pending = asyncio.ensure_future(asyncio.sleep(9))
    fail()
    await asyncio.sleep(0)
loop = asyncio.new_event_loop()
loop.run_until_complete(start())
unclosed = asyncio.new_event_loop().create_task
del loop
gc.collect()
"""
"""Python itself then says what is wrong, in its own words."""


def test_every_error_of_asyncio_is_found_in_a_brokers_log() -> None:
    words = [sys.executable, "-W", "always", "-c", BAD_PROGRAM]
    log = subprocess.run(words, capture_output=True, text=True, check=True).stderr
    found = "\n".join(lines_of(f"INFO sparklog fine\n{log}INFO sparklog awaited\n"))
    for phrase in ("Task exception was never", "Task was destroyed", "coroutine 'fail' was never",
                   "unclosed event loop"):  # fmt: skip
        assert phrase in found, log
    assert "sparklog" not in found


def test_lines_of_an_open_log_are_found_when_its_folder_is_gone(tmp_path: Path) -> None:
    logs = OpenLogs()
    stderr = tmp_path / "stderr"
    stderr.write_text("INFO sparklog fine\n")
    logs.open([stderr, tmp_path / "nothing"])
    bad = "2026-01-01 00:00:00,000 ERROR asyncio Task exception was never retrieved"
    with stderr.open("a") as file:
        file.write(f"{bad}\nTraceback\n")
    stderr.unlink()
    assert logs.close() == {str(stderr): [bad]}
