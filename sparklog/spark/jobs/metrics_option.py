"""Metrics of a job that ends before anybody could ask for them: the option that says where to."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

METRICS_OPTION: Final = "--metrics-file"


def add_metrics_option(parser: argparse.ArgumentParser) -> None:
    """Declare where metrics go when the job has ended; `run_job` writes them for every job."""
    parser.add_argument(
        METRICS_OPTION,
        metavar="PATH",
        help="when it has ended, write its metrics there as text for Prometheus (a .prom file in "
        "the folder of node_exporter's textfile collector)",
    )


def metrics_file(argv: Sequence[str]) -> Path | None:
    """Return where metrics are wanted by a job's words, None when they are not."""
    finder = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    finder.add_argument(METRICS_OPTION)
    path: str | None = finder.parse_known_args(argv)[0].metrics_file
    return None if path is None else Path(path).absolute()
