"""CommandParser: the options of commands, and the handling of usage errors with exit code 2.

Options have the full names of Kafka's tools. There are no abbreviations: a script with one breaks
when an option is added.

It also parses commands with several actions, one per call: `--list`, `--describe`, …, and their
options.

An option that the action would ignore is an error: the user expects an effect. Actions and options
have their argparse names, with underscores.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NoReturn

Arguments = argparse.Namespace


class UsageError(Exception):
    """The options contradict each other, or one has an impossible value."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option, as completion scripts need it."""

    name: str
    takes_value: bool
    choices: tuple[str, ...]
    help: str


class CommandParser(argparse.ArgumentParser):
    """The parser of one command."""

    def __init__(self, command: str, summary: str) -> None:
        """Create the parser for a command's name."""
        super().__init__(
            prog=f"sparklog {command}",
            description=summary,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        self.set_defaults(program=self.prog)

    def error(self, message: str) -> NoReturn:
        """Print the usage error in one line, and stop with exit code 2."""
        self.exit(2, f"error: {message}; `{self.prog} --help` lists the options\n")

    def words(self) -> list[str]:
        """Return the values of positional arguments."""
        return [str(c) for a in self._actions if not a.option_strings for c in a.choices or ()]

    def options(self) -> list[Option]:
        """Return every long option, in the order of declaration."""
        return [
            Option(
                name=name,
                takes_value=action.nargs != 0,
                choices=tuple(str(c) for c in action.choices or ()),
                help=re.split(r"[;:(]", action.help or "")[0].strip(),
            )
            for action in self._actions
            if action.help is not argparse.SUPPRESS
            for name in action.option_strings
            if name.startswith("--")
        ]


def whole_number(text: str) -> int:
    """Return a number of at least zero, for `type=`."""
    value = int(text) if text.isascii() and text.isdigit() else -1
    if value < 0:
        raise argparse.ArgumentTypeError(f"not a whole number: {text!r}")
    return value


def counting_number(text: str) -> int:
    """Return a number of at least one, for `type=`."""
    value = whole_number(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1: {text!r}")
    return value


def key_values(given: Iterable[str], option: str) -> dict[str, str]:
    """Return `key=value` words as a dictionary; a later one wins, a value may be empty.

    Raises:
        UsageError: a word without '='.
    """
    found = {}
    for word in given:
        key, equals, value = word.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{option} takes key=value, not {word!r}")
        found[key.strip()] = value
    return found


def check_known(given: Iterable[str], known: Sequence[str], option: str) -> None:
    """Reject an unknown property.

    Raises:
        UsageError: the message offers the closest known name.
    """
    for name in given:
        if name not in known:
            raise UsageError(f"{option} knows no {name!r}; {suggestion(name, known)}")


def suggestion(name: str, known: Sequence[str]) -> str:
    """Return "did you mean …?" for a near miss, else the list of choices."""
    import difflib  # noqa: PLC0415 - only a wrong call pays for it

    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else f"choose from {', '.join(known)}"


def is_true(text: str) -> bool:
    """Return a boolean property as Kafka's tools read it: anything but "true" is false."""
    return text.strip().lower() == "true"


def add_actions(
    parser: CommandParser, actions: Mapping[str, str]
) -> argparse._MutuallyExclusiveGroup:
    """Declare actions with their help; a call names one of them: `args.action`."""
    group = parser.add_mutually_exclusive_group(required=True)
    for action, help_text in actions.items():
        group.add_argument(
            spelled(action), dest="action", action="store_const", const=action, help=help_text
        )
    return group


def set_action(args: Arguments, actions: Iterable[str]) -> None:
    """Set `args.action` to the given action, of those that take a value: `--create NAME`."""
    args.action = next(action for action in actions if is_given(args, action))


def spelled(name: str) -> str:
    """Return an action or an option as typed on the command line."""
    return f"--{name.replace('_', '-')}"


def is_given(args: Arguments, option: str) -> bool:
    """Return True if an option is among the arguments."""
    value = getattr(args, option)
    return value is not None and value is not False and value != []


def check_options(args: Arguments, actions_of_option: Mapping[str, Sequence[str]]) -> None:
    """Reject an option of other actions.

    Raises:
        UsageError: the message names the actions of the option.
    """
    for option, actions in actions_of_option.items():
        if is_given(args, option) and args.action not in actions:
            fitting = " or ".join(map(spelled, actions))
            raise UsageError(
                f"{spelled(option)} does not go with {spelled(args.action)}, but with {fitting}"
            )


def check_needed(args: Arguments, options: Iterable[str]) -> None:
    """Reject an action without its required options.

    Raises:
        UsageError: the message names the first missing one.
    """
    for option in options:
        if not is_given(args, option):
            raise UsageError(f"{spelled(args.action)} needs {spelled(option)}")
