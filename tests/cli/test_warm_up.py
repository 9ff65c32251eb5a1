"""`sparklog warm-up`."""

from __future__ import annotations

from pathlib import Path

from tests.cli.conftest import Cli


def test_warm_up_names_the_folders_that_keep_compiled_code(cli: Cli) -> None:
    *kernels, classes = cli.ok("warm-up").text.splitlines()
    assert kernels
    for line in kernels:
        assert list(Path(line.removeprefix("kernels are kept in ")).glob("*.nbc"))
    assert Path(classes.removeprefix("Spark's classes are kept in ")).stat().st_size > 50_000_000
