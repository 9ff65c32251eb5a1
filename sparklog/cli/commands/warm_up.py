"""`sparklog warm-up`: compiles kernels and archives Spark's classes, so that starts are fast.

For images and read-only installs: run it as the user that installed sparklog, on the kind of
processor that will run it.
"""

from __future__ import annotations

from sparklog.cli.arguments import Arguments, CommandParser
from sparklog.cli.output import Output
from sparklog.core.errors import Unavailable
from sparklog.log.kernels import compile_kernels

_EPILOG = """
The code is kept beside sparklog's own files if those can be written, else in $NUMBA_CACHE_DIR or in
the user's cache folder, and loaded from there by every later process. It is of this machine's kind
of processor; NUMBA_CPU_NAME=generic, set here and where brokers run, makes it fit all of a family.

The archive of Spark's classes (120 MB) halves what Spark's processes need to start. It is kept in
the virtual environment, else in the user's cache folder ($XDG_CACHE_HOME), and fits one Java.
"""


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    parser.epilog = _EPILOG


def run(args: Arguments, output: Output) -> int:
    """Compile, archive Spark's classes, and print where both are kept.

    Raises:
        Unavailable: no folder can keep the kernels.
    """
    from sparklog.spark.jobs.archive_maker import make_archive  # noqa: PLC0415 - loads pyspark

    folders = compile_kernels()
    if not folders:
        raise Unavailable(
            "the compiled kernels can be kept nowhere: set NUMBA_CACHE_DIR to a folder that can be "
            "written"
        )
    for folder in folders:
        output.line(f"kernels are kept in {folder}")
    try:
        output.line(f"Spark's classes are kept in {make_archive()}")
    except Unavailable as error:  # Spark works without
        output.line(f"note: {error}")
    return 0
