"""Commands and examples of README and `sparklog/docs`: each works as written."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).resolve().parents[2] / "README.md"
PAGES = [README, *sorted((README.parent / "sparklog" / "docs").glob("*.md"))]


def blocks(language: str) -> list[str]:
    """Return the code blocks in `language` of README and the pages."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_python_example_prints_the_record_it_appended(tmp_path: Path) -> None:
    (example,) = [block for block in blocks("python") if "open_log" in block]
    answer = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    assert answer.stdout == "[{'offset': 0, 'key': b'ann', 'value': b'hello'}]\n"


def test_command_line_example_consumes_the_records_it_produced(tmp_path: Path) -> None:
    (example,) = [block for block in blocks("sh") if "export SPARKLOG_ROOT" in block]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    answer = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", example],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        check=True,
        capture_output=True,
        text=True,
    )
    lines = answer.stdout.splitlines()
    assert {"ann\thello", "bob\tgood day"} <= set(lines)
    assert sum(int(line.rsplit(":", 1)[1]) for line in lines if line.startswith("greetings:")) == 2


def test_every_make_target_it_names_exists() -> None:
    makefile = (README.parent / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = set(re.findall(r"^make ([a-z-]+)", "\n".join(blocks("sh")), re.MULTILINE))
    assert named
    assert named <= targets


def test_readme_is_short() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert len(text.split()) <= 1300
