"""The `sparklog` command: runs a sub-command, and converts errors to exit codes.

- 0: done.
- 1: failed; one line on standard error has the reason and what to do.
- 2: usage error; the usage is on standard error.
- 130: interrupted.
- 141: the reader of the output has gone (as for a process that SIGPIPE ends).

A command is a module with `configure(parser)` and `run(args, output) -> exit code`. It is imported
only when used, which keeps every start short.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from sparklog.cli.arguments import Arguments, CommandParser, UsageError, suggestion
from sparklog.cli.output import Output, say
from sparklog.core.errors import SparklogError

DONE = 0
FAILED = 1
MISUSED = 2
INTERRUPTED = 130
READER_GONE = 141


@dataclass(frozen=True, slots=True)
class Command:
    """The module of a command, and its summary."""

    module: str
    summary: str
    package: str = "sparklog.cli.commands"
    without_pandas: bool = False
    """PyArrow imports pandas wherever it is installed, which takes a third of a start."""


class WithoutPandas:
    """Lets imports of pandas fail, as where it is not installed."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        """Raise ModuleNotFoundError for pandas; leave other modules to others."""
        if name == "pandas":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


class CommandModule(Protocol):
    """Interface of every command's module."""

    def configure(self, parser: CommandParser) -> None:
        """Declare the command's options."""

    def run(self, args: Arguments, output: Output) -> int:
        """Run the command, and return the exit code."""


COMMANDS = {
    "topics": Command("topics", "Create, list, describe, alter and delete topics."),
    "configs": Command("configs", "Show and change the settings of topics and brokers."),
    "produce": Command("produce", "Append each line of standard input to a topic."),
    "consume": Command("consume", "Print the records of topics, and follow them."),
    "sql": Command("sql", "Run a query over topics.", without_pandas=True),
    "get": Command("get", "Print the newest value of a key.", without_pandas=True),
    "find": Command("find", "Print the records of one key."),
    "get-offsets": Command("get_offsets", "Print offsets of partitions, also by time."),
    "delete-records": Command("delete_records", "Delete the oldest records of partitions."),
    "snapshots": Command("snapshots", "Keep what topics hold now under a name."),
    "brokers": Command("brokers", "List the brokers that serve the log."),
    "features": Command("features", "Show and finalize levels of features, for upgrades."),
    "log-dirs": Command("log_dirs", "Show what each broker holds of which partition."),
    "leader-election": Command("leader_election", "Elect leaders of partitions."),
    "reassign-partitions": Command(
        "reassign_partitions", "Move replicas of partitions between brokers."
    ),
    "groups": Command("groups", "Describe consumer groups, move their offsets, delete them."),
    "transactions": Command("transactions", "Show transactions, and abort those that hang."),
    "users": Command("users", "List users, set their passwords and remove them."),
    "tokens": Command("tokens", "Create, list, renew and expire delegation tokens."),
    "acls": Command("acls", "List, add and remove access control lists."),
    "iam-policy": Command("iam_policy", "Print the least AWS policy for what ACLs grant."),
    "pipeline": Command("pipeline", "Keep tables and topics up to date from topics, by Spark."),
    "registry": Command("registry", "Serve a schema registry with Confluent's REST API."),
    "serve": Command("serve", "Run brokers as tasks of a Spark application."),
    "run": Command("run", "Run one of the jobs of jobs/ in a Spark of this machine."),
    "jobs": Command("jobs", "List upkeep jobs and their runs, and run one now."),
    "console": Command(
        "command", "Show and change the log in a browser.", package="sparklog.console"
    ),
    "conf": Command("conf", "List the presets of conf/ and copy them."),
    "dump-log": Command("dump_log", "Print segments, manifests and records as they are stored."),
    "warm-up": Command(
        "warm_up", "Compile what brokers and jobs need, so that they start at once."
    ),
    "doctor": Command("doctor", "Check this machine and a root; say what is wrong."),
    "client-metrics": Command("client_metrics", "Show the metrics that clients push to brokers."),
    "debug": Command("debug", "Pack what a report of a problem needs, without secrets."),
    "completion": Command("completion", "Print a completion script for bash, zsh or fish."),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    if argv is None and given and given[0] in COMMANDS and COMMANDS[given[0]].without_pandas:
        sys.meta_path.insert(0, WithoutPandas())
    try:
        code = _dispatch(given)
        sys.stdout.flush()
    except SystemExit as stop:  # argparse has printed the message
        return stop.code if isinstance(stop.code, int) else FAILED
    except KeyboardInterrupt:
        return _after(INTERRUPTED)
    except BrokenPipeError:
        return _after(READER_GONE)
    except SparklogError as error:
        return _failed(str(error))
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        return _failed(f"{error.strerror or error}{where}")
    return code


def parser_of(name: str) -> tuple[CommandModule, CommandParser]:
    """Return a command's module and its parser."""
    command = COMMANDS[name]
    module = cast("CommandModule", importlib.import_module(f"{command.package}.{command.module}"))
    parser = CommandParser(name, command.summary)
    module.configure(parser)
    return module, parser


def _dispatch(given: list[str]) -> int:
    name = given[0] if given else "--help"
    if name in {"-h", "--help"}:
        print(_overview())
        return DONE if given else MISUSED
    if name == "--version":
        print(f"sparklog {_version()}")
        return DONE
    if name not in COMMANDS:
        say(f"error: no such command: {name!r}; {suggestion(name, list(COMMANDS))}")
        return MISUSED
    collects = gc.isenabled()
    gc.disable()  # what modules make stays; to look through it takes a twentieth of a start
    try:
        module, parser = parser_of(name)
    finally:
        if collects:
            gc.enable()
    args = parser.parse_args(given[1:])
    output = Output(sys.stdout.buffer, as_json=bool(getattr(args, "json", False)))
    try:
        code = module.run(args, output)
    except UsageError as error:
        parser.error(str(error))
    output.flush()
    return code


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: sparklog COMMAND [options]",
            "",
            *lines,
            "",
            "The log is where --root or SPARKLOG_ROOT says: a folder or s3://bucket/prefix; or it",
            "is served by the brokers of --bootstrap-server or SPARKLOG_BOOTSTRAP_SERVER.",
            "`sparklog COMMAND --help` lists the options of a command.",
        ]
    )


def _version() -> str:
    from importlib import metadata  # noqa: PLC0415 - slow to import, seldom asked

    try:
        return metadata.version("sparklog")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _failed(message: str) -> int:
    code = _after(FAILED)
    say(f"error: {message}")
    return code


def _after(code: int) -> int:
    """Flush the remaining output, or drop it: a missing reader must not cause an error at exit."""
    try:
        sys.stdout.flush()
    except (BrokenPipeError, ValueError):
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, sys.stdout.fileno())
        except (OSError, ValueError):
            pass  # standard output is not a file: there is nothing to flush into
    return code
