"""`sparklog conf`: the presets of `conf/`: listed, or copied to a folder where they are adapted.

Presets are settings of Spark for clusters, a schedule of upkeep and the same for cron, systemd,
Kubernetes and Airflow, and a file for MirrorMaker.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from sparklog.cli.arguments import Arguments, CommandParser
from sparklog.cli.output import Output
from sparklog.core.errors import InvalidRequest
from sparklog.core.shipped_files import shipped_folder

_NOT_PRESETS: Final = ("constraints.txt",)
"""The versions that `make setup` installs."""
_JARS_LINE: Final = re.compile(r"^spark\.jars\s.*$", re.MULTILINE)
_EPILOG = """
--copy keeps files that are there: it refuses to write over one that differs. spark-defaults.conf is
written for this installation: it names the jars of Delta Lake and Avro that set-up fetched, else
their coordinates, which Spark resolves at its first start.
"""


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--list", action="store_true", help="list the presets, and where they are")
    what.add_argument(
        "--copy", type=Path, metavar="DIR", help="copy them there; the folder is made if absent"
    )
    parser.epilog = _EPILOG


def run(args: Arguments, output: Output) -> int:
    """List or copy, and return the exit code.

    Raises:
        InvalidRequest: a file is there already, and differs.
    """
    folder = shipped_folder("conf")
    presets = list(_presets(folder))
    if args.copy is None:
        for path in presets:
            output.line(str(path))
        return 0
    texts = {args.copy / path.relative_to(folder): _text(path) for path in presets}
    for target, text in texts.items():
        if target.exists() and target.read_text(encoding="utf-8") != text:
            raise InvalidRequest(f"{target} is there, and differs: remove it or copy elsewhere")
    for target, text in texts.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
        output.line(str(target))
    return 0


def _presets(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in _NOT_PRESETS and "__pycache__" not in path.parts:
            yield path


def _text(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    if path.name != "spark-defaults.conf":
        return text
    from sparklog.spark.jobs.jars import jars_settings  # noqa: PLC0415 - brings Spark

    line = "".join(f"{name:<35} {value}\n" for name, value in jars_settings().items()).rstrip()
    return _JARS_LINE.sub(lambda _: line, text)
