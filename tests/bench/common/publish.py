"""From what was found to files, and a table on the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.bench.common.plot import draw
from tests.bench.common.report import document, markdown, text_table
from tests.bench.common.results import Results


def publish(results: Results, facts: Mapping[str, Any], folder: Path, name: str) -> None:
    """Print the table and write JSON, Markdown and a picture."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.with_suffix(".json").write_text(json.dumps(document(results, facts), indent=1) + "\n")
    path.with_suffix(".md").write_text(markdown(results, facts))
    draw(results, path.with_suffix(".png"), f"{facts['title']}, {name}")
    sys.stdout.write(text_table(results))
    sys.stdout.write(f"\n{path}.json .md .png\n")
