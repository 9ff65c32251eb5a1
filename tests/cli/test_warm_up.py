"""`sparklog warm-up`."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Cli


def test_warm_up_names_the_folders_that_keep_compiled_code(cli: Cli) -> None:
    lines = cli.ok("warm-up").text.splitlines()
    assert lines
    for line in lines:
        assert list(Path(line.removeprefix("kernels are kept in ")).glob("*.nbc"))
