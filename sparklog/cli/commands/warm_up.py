"""`sparklog warm-up`: compiles the kernels now, so that no first start has to.

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
"""


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    parser.epilog = _EPILOG


def run(args: Arguments, output: Output) -> int:
    """Compile, and print the folders of the code.

    Raises:
        Unavailable: no folder can keep it.
    """
    folders = compile_kernels()
    if not folders:
        raise Unavailable(
            "the compiled kernels can be kept nowhere: set NUMBA_CACHE_DIR to a folder that can be "
            "written"
        )
    for folder in folders:
        output.line(f"kernels are kept in {folder}")
    return 0
