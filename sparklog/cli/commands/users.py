"""`sparklog users`: the users of a log, and their passwords.

A password comes from a prompt, a file or standard input, and never from the command line: other
users of the machine see that. It appears in no output and in no error.
"""

from __future__ import annotations

import getpass
import sys
from collections.abc import Mapping
from pathlib import Path

from sparklog.cli.arguments import (
    Arguments,
    CommandParser,
    UsageError,
    check_options,
    counting_number,
    is_given,
    set_action,
)
from sparklog.cli.output import Output, say
from sparklog.cli.target import add_log_options, administered
from sparklog.core.errors import InvalidRequest, ResourceNotFound
from sparklog.security.sasl.credentials import (
    ITERATIONS_MAX,
    ITERATIONS_MIN,
    PASSWORD_BYTES_MAX,
    SCRAM_NAMES,
    ScramMechanism,
)

_ACTIONS_OF_OPTION = {
    "password_file": ("add",),
    "password_stdin": ("add",),
    "mechanism": ("add", "remove"),
    "iterations": ("add",),
}
_READ_MAX = PASSWORD_BYTES_MAX + 3
"""Bytes: a password, its line end, and one byte that shows that there is more."""


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    actions = parser.add_mutually_exclusive_group(required=True)
    actions.add_argument("--list", action="store_true", help="list the users")
    actions.add_argument("--describe", metavar="USER", help="show the mechanisms of a user")
    actions.add_argument("--add", metavar="USER", help="create a user, or change the password")
    actions.add_argument("--remove", metavar="USER", help="delete a user's credentials")
    parser.add_argument(
        "--password-file",
        metavar="FILE",
        type=Path,
        help="file whose one line is the password (default: a prompt)",
    )
    parser.add_argument(
        "--password-stdin", action="store_true", help="read the password from standard input"
    )
    parser.add_argument(
        "--mechanism",
        action="append",
        choices=sorted(SCRAM_NAMES),
        help="a mechanism to add or to remove; may be repeated (default all)",
    )
    parser.add_argument(
        "--iterations",
        metavar="N",
        type=counting_number,
        help=f"rounds of the derivation, {ITERATIONS_MIN} to {ITERATIONS_MAX} "
        f"(default {ITERATIONS_MIN})",
    )
    add_log_options(parser)


def run(args: Arguments, output: Output) -> int:
    """List, describe, add or remove users."""
    set_action(args, ("list", "describe", "add", "remove"))
    check_options(args, _ACTIONS_OF_OPTION)
    mechanisms = [SCRAM_NAMES[name] for name in dict.fromkeys(args.mechanism or ())]
    if args.action == "add":
        _add(args, mechanisms or list(ScramMechanism), output)
        return 0
    with administered(args) as log:
        users = log.users()
        if args.action == "remove":
            log.remove_password(args.remove, mechanisms or None)
            known = users.get(args.remove, {})
            left = {m: n for m, n in known.items() if mechanisms and m not in mechanisms}
            output.line(_removed(args.remove, left))
            output.document(_document(args.remove, left))
            return 0
    if args.action == "describe":
        if args.describe not in users:
            raise ResourceNotFound(f"no such user. user={args.describe!r}")
        users = {args.describe: users[args.describe]}
    for name, credentials in sorted(users.items()):
        line = name if args.action == "list" else _described(name, credentials)
        output.put(line, _document(name, credentials))
    return 0


def _add(args: Arguments, mechanisms: list[ScramMechanism], output: Output) -> None:
    name = args.add
    password = _password(args)
    with administered(args) as log:
        known = log.users().get(name, {})
        iterations = ITERATIONS_MIN if args.iterations is None else args.iterations
        log.set_password(name, password, mechanisms, iterations)
    credentials = {**known, **dict.fromkeys(mechanisms, iterations)}
    output.line(f"Changed the password of user {name}." if known else f"Added user {name}.")
    output.document(_document(name, credentials))
    kept = [one.sasl_name for one in known if one not in mechanisms]
    if kept:
        say(f"note: {', '.join(kept)} keeps its own password; --remove it if it is too old")


def _described(name: str, credentials: Mapping[ScramMechanism, int]) -> str:
    """Return the line that kafka-configs prints."""
    shown = ", ".join(
        f"{mechanism.sasl_name}=iterations={credentials[mechanism]}"
        for mechanism in sorted(credentials)
    )
    return f"SCRAM credential configs for user-principal '{name}' are {shown}"


def _removed(name: str, left: Mapping[ScramMechanism, int]) -> str:
    if not left:
        return f"Removed user {name}."
    names = ", ".join(mechanism.sasl_name for mechanism in sorted(left))
    return f"Removed credentials of user {name}; left: {names}."


def _document(name: str, credentials: Mapping[ScramMechanism, int]) -> dict[str, object]:
    return {
        "user": name,
        "credentials": [
            {"mechanism": mechanism.sasl_name, "iterations": credentials[mechanism]}
            for mechanism in sorted(credentials)
        ],
    }


def _password(args: Arguments) -> str:
    """Return the password from a file, standard input or a prompt.

    Raises:
        UsageError: two places, or no place and no terminal. InvalidRequest: not one line of text.
    """
    if is_given(args, "password_file") and args.password_stdin:
        raise UsageError("--password-file and --password-stdin are two places; give one of them")
    if is_given(args, "password_file"):
        with args.password_file.open("rb") as file:
            return _one_line(file.read(_READ_MAX), "--password-file")
    if args.password_stdin:
        return _one_line(sys.stdin.buffer.read(_READ_MAX), "--password-stdin")
    if not sys.stdin.isatty():
        raise UsageError("no terminal to ask on; give --password-file or --password-stdin")
    password = getpass.getpass(f"password of {args.add!r}: ")
    if getpass.getpass("the same again: ") != password:
        raise InvalidRequest("the two passwords differ; nothing was changed.")
    return password


def _one_line(data: bytes, option: str) -> str:
    if len(data) == _READ_MAX:
        raise InvalidRequest(
            f"a password has at most {PASSWORD_BYTES_MAX} bytes, and a line end. option={option}"
        )
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"a password is UTF-8 text. option={option}") from None
    line = text.removesuffix("\n").removesuffix("\r")
    if "\n" in line or "\r" in line:
        raise InvalidRequest(f"a password is one line, and nothing else. option={option}")
    return line
