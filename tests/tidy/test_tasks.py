"""Tasks are started where their errors are retrieved; see `broker/runtime/environment.py`."""

from __future__ import annotations

import ast

from tests.asyncio_errors import IN_A_LOG, lines_of
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


def test_an_error_of_asyncio_is_found_in_a_brokers_log() -> None:
    bad = f"2026-01-01 00:00:00,000 {IN_A_LOG}Task exception was never retrieved"
    assert lines_of(f"INFO sparklog fine\n{bad}\nTraceback\n") == [bad]
