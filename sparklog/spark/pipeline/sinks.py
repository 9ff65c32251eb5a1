"""The sinks of a pipeline that write to a log: noted when an update registers its definitions.

`sparklog pipeline status` reads the note, since it runs no definitions. A sink is known by its
name, and the note has the root of its log.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.pipelines.output import Output, Sink
from pyspark.pipelines.spark_connect_graph_element_registry import SparkConnectGraphElementRegistry

from sparklog.spark.pipeline.project import SINKS_NAME

FORMAT: Final = "sparklog"


class SinkNotes(SparkConnectGraphElementRegistry):
    """Registers definitions as Spark does, and notes the sinks among them."""

    def __init__(self, session: object, graph: str) -> None:
        """Register in a graph of `session`, which is one of Spark Connect."""
        super().__init__(session, graph)  # type: ignore[arg-type]
        self.roots: dict[str, str] = {}

    def register_output(self, output: Output) -> None:
        """Register a table, view or sink."""
        super().register_output(output)
        if isinstance(output, Sink) and output.format == FORMAT and "path" in output.options:
            self.roots[output.name] = output.options["path"]


def keep_sinks(folder: Path, roots: Mapping[str, str]) -> None:
    """Write the note of a project: the names of sinks and the roots of their logs."""
    path = folder / SINKS_NAME
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(dict(sorted(roots.items())), indent=1) + "\n")
    draft.replace(path)
