"""The demo's processes: talked to by lines, and gone when the demo is."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from sparklog.spark.demo.processes import ChildFailed, Children
from tests.harness.waiting import eventually

DEADLINE_S = 100


def _python(code: str) -> list[str]:
    return [sys.executable, "-c", textwrap.dedent(code)]


def _gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # A zombie without a wait by its parent still has its number.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def _await_gone(pid: int) -> None:
    eventually(lambda: _gone(pid), f"the end of process {pid}", DEADLINE_S)


def test_reports_are_json_lines_and_the_rest_is_logged(tmp_path: Path) -> None:
    told: list[str] = []
    code = """
        import sys
        print("WARN noise"); print("{noise}"); print('{"n": 1}')
        print("1,000 records, 5 s"); print('{"n": 2}')
        print("error: not really", file=sys.stderr)
    """
    with Children(tmp_path / "log") as children:
        child = children.start(_python(code), os.environ, told.append)
        assert child.document() == {"n": 1}
        assert child.finish() == [{"n": 2}]
    assert sorted(told) == ["1,000 records, 5 s", "error: not really"]
    logged = (tmp_path / "log").read_text().splitlines()
    assert sorted(logged) == ["1,000 records, 5 s", "WARN noise", "error: not really", "{noise}"]


def test_process_answers_its_input(tmp_path: Path) -> None:
    code = "import sys; [print('{\"n\": %s}' % line.strip(), flush=True) for line in sys.stdin]"
    with Children(tmp_path / "log") as children:
        child = children.start(_python(code), os.environ)
        for n in (3, 4):
            child.send(str(n))
            assert child.document() == {"n": n}


def test_a_failure_carries_the_last_words(tmp_path: Path) -> None:
    code = "import sys; print('noise'); sys.exit('error: no such topic. topic=t')"
    with Children(tmp_path / "log") as children:
        child = children.start(_python(code), os.environ)
        with pytest.raises(ChildFailed, match=r"error: no such topic\. topic=t"):
            child.finish()


def test_an_end_instead_of_a_report_is_a_failure(tmp_path: Path) -> None:
    with Children(tmp_path / "log") as children:
        child = children.start(_python("print('bye')"), os.environ)
        with pytest.raises(ChildFailed, match="bye"):
            child.document()


def test_context_exit_kills_a_process_that_ignores_sigterm(
    tmp_path: Path,
) -> None:
    code = """
        import signal, subprocess, sys, json, os
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        print(json.dumps({"pid": child.pid}), flush=True)
        signal.pause()
    """
    with Children(tmp_path / "log", end_timeout_s=0.2) as children:
        child = children.start(_python(code), os.environ)
        grandchild = child.document()["pid"]
    assert child.process.returncode == -9
    _await_gone(grandchild)


def test_the_s3_server_counts_requests_and_ends_with_its_input(tmp_path: Path) -> None:
    server = [sys.executable, "-m", "sparklog.spark.demo.s3_server"]
    with Children(tmp_path / "log") as children:
        child = children.start(server, os.environ)
        port = child.document()["port"]
        url = f"http://127.0.0.1:{port}/bucket"
        put = "import sys, urllib.request as r; r.urlopen(r.Request(sys.argv[1], method='PUT'))"
        subprocess.run([sys.executable, "-c", put, url], check=True, timeout=DEADLINE_S)
        get = "import sys, urllib.request as r; r.urlopen(sys.argv[1] + '?list-type=2').read()"
        subprocess.run([sys.executable, "-c", get, url], check=True, timeout=DEADLINE_S)
        child.send("counts")
        assert child.document() == {"PUT": 1, "LIST": 1}
        assert child.process.stdin is not None
        child.process.stdin.close()
        assert child.process.wait(DEADLINE_S) == 0
