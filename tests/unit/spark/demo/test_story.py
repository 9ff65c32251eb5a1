"""The demo's surroundings: its folder, its words, its calls."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from sparklog.cli.commands import demo
from sparklog.core.clock import ManualClock
from sparklog.core.errors import InvalidRequest
from sparklog.spark.demo.processes import shown
from sparklog.spark.demo.scene import Narrator
from sparklog.spark.demo.story import prepare_folder


def test_the_demo_empties_its_own_folder(tmp_path: Path) -> None:
    folder = tmp_path / "demo-root"
    prepare_folder(folder)
    (folder / "log").mkdir()
    (folder / "log" / "x.arrow").touch()
    prepare_folder(folder)
    assert [path.name for path in folder.iterdir()] == [".sparklog-demo"]


def test_the_demo_leaves_other_folders_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(InvalidRequest, match="not the demo's"):
        prepare_folder(tmp_path)
    assert (tmp_path / "thesis.tex").exists()


def test_a_foreign_folder_ends_the_demo_with_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "thesis.tex").touch()
    assert demo.main(["--folder", str(tmp_path)]) == 1
    said = capsys.readouterr()
    assert said.err.startswith("error: the folder holds something")
    assert said.err.count("\n") == 1
    assert not said.out


def test_steps_are_numbered_and_timed() -> None:
    stream, clock = io.StringIO(), ManualClock()
    narrator = Narrator(stream, 2, clock)
    clock.sleep_s(3)
    narrator.step("First")
    narrator.tell("one\ntwo")
    narrator.command("a \\\nb")
    assert stream.getvalue() == ("\n[1/2] First  (3 s)\n    one\n    two\n    $ a \\\n      b\n")


def test_calls_are_shown_as_a_person_would_type_them() -> None:
    text = shown("jobs/x.py", ["--key", "f(a, b)", "--schema", "a INT, " * 40, "--topic", "t"])
    assert text.splitlines()[0].startswith('spark-submit jobs/x.py --key "f(a, b)" --schema "a')
    assert max(map(len, text.splitlines())) <= 140
