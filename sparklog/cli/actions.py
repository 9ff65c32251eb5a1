"""Commands with several actions, one per call: `--list`, `--describe`, …, and their options.

An option that the action would ignore is an error: the user expects an effect. Actions and options
have their argparse names, with underscores.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Mapping, Sequence

from sparklog.cli.usage import Arguments, CommandParser, UsageError


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
