"""`sparklog completion`: completion scripts, generated from the options of the commands.

The scripts complete topic names with `sparklog topics --list`, which needs SPARKLOG_ROOT or
SPARKLOG_BOOTSTRAP_SERVER.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparklog.cli.arguments import Arguments, CommandParser, Option
from sparklog.cli.main import COMMANDS, parser_of
from sparklog.cli.output import Output

TOPIC_OPTIONS = ("--topic", "--entity-name")
FILE_OPTIONS = (
    "--command-config",
    "--file",
    "--files",
    "--from-file",
    "--jobs",
    "--offset-json-file",
    "--password-file",
    "--path-to-json-file",
    "--reassignment-json-file",
    "--root",
    "--topics-to-move-json-file",
)
TOPICS_COMMAND = "sparklog topics --list 2>/dev/null"


@dataclass(frozen=True, slots=True)
class Completed:
    """The words to complete for one command."""

    summary: str
    options: Sequence[Option]
    words: Sequence[str]


def configure(parser: CommandParser) -> None:
    """Declare the argument."""
    parser.add_argument("shell", choices=sorted(_WRITERS), help="which shell's script to print")
    parser.epilog = (
        "bash:  source <(sparklog completion bash)\n"
        'zsh:   sparklog completion zsh > "${fpath[1]}/_sparklog"\n'
        "fish:  sparklog completion fish > ~/.config/fish/completions/sparklog.fish"
    )


def run(args: Arguments, output: Output) -> int:
    """Print the script."""
    commands = {}
    for name, command in COMMANDS.items():
        parser = parser_of(name)[1]
        commands[name] = Completed(command.summary, parser.options(), parser.words())
    output.raw(_WRITERS[args.shell](commands).encode())
    return 0


def bash(commands: Mapping[str, Completed]) -> str:
    """Return the script for bash."""
    cases = "\n".join(
        f"    {name}) words='{' '.join([*(o.name for o in found.options), *found.words])}' ;;"
        for name, found in commands.items()
    )
    return f"""# sparklog completion for bash
_sparklog() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} words=''
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W '{" ".join(commands)} --help --version' -- "$word"))
    return
  fi
  case $before in
    {"|".join(TOPIC_OPTIONS)}) words=$({TOPICS_COMMAND}) ;;
    {"|".join(FILE_OPTIONS)}) COMPREPLY=($(compgen -f -- "$word")); return ;;
{_bash_choices(commands)}    *) case ${{COMP_WORDS[1]}} in
{cases}
    esac ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -F _sparklog sparklog
"""


def _bash_choices(commands: Mapping[str, Completed]) -> str:
    options = [option for command in commands.values() for option in command.options]
    choices = {option.name: option.choices for option in options if option.choices}
    return "".join(f"    {name}) words='{' '.join(c)}' ;;\n" for name, c in choices.items())


def zsh(commands: Mapping[str, Completed]) -> str:
    """Return the script for zsh."""
    summaries = "\n".join(f"    '{name}:{_plain(c.summary)}'" for name, c in commands.items())
    cases = "\n".join(
        f"    {name}) _arguments {' '.join([*map(_zsh_option, c.options), *_zsh_words(c)])} ;;"
        for name, c in commands.items()
    )
    return f"""#compdef sparklog
_sparklog_topics() {{ compadd -- ${{(f)"$({TOPICS_COMMAND})"}} }}
_sparklog() {{
  local -a commands=(
{summaries}
  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local name=$words[2]
  shift words
  (( CURRENT-- ))
  case $name in
{cases}
  esac
}}
_sparklog "$@"
"""


def _zsh_words(command: Completed) -> list[str]:
    return [f"':word:({' '.join(command.words)})'"] if command.words else []


def _zsh_option(option: Option) -> str:
    value = ""
    if option.choices:
        value = f":value:({' '.join(option.choices)})"
    elif option.name in TOPIC_OPTIONS:
        value = ":topic:_sparklog_topics"
    elif option.name in FILE_OPTIONS:
        value = ":file:_files"
    elif option.takes_value:
        value = ":value: "
    return f"'*{option.name}[{_plain(option.help)}]{value}'"


def fish(commands: Mapping[str, Completed]) -> str:
    """Return the script for fish."""
    lines = ["# sparklog completion for fish", "complete -c sparklog -f"]
    lines += [
        f"complete -c sparklog -n __fish_use_subcommand -a {name} -d '{_plain(c.summary)}'"
        for name, c in commands.items()
    ]
    for name, command in commands.items():
        when = f"complete -c sparklog -n '__fish_seen_subcommand_from {name}'"
        lines += [
            f"{when} -l {o.name[2:]}{_fish_value(o)} -d '{_plain(o.help)}'" for o in command.options
        ]
        lines += [f"{when} -a '{' '.join(command.words)}'"] if command.words else []
    return "\n".join(lines) + "\n"


def _fish_value(option: Option) -> str:
    if option.choices:
        return f" -x -a '{' '.join(option.choices)}'"
    if option.name in TOPIC_OPTIONS:
        return f" -x -a '({TOPICS_COMMAND})'"
    if option.name in FILE_OPTIONS:
        return " -r -F"
    return " -x" if option.takes_value else ""


def _plain(text: str) -> str:
    """Return text without special characters for a shell, inside single quotes and brackets."""
    return "".join(c for c in text if c.isalnum() or c in " ,.-/")


_WRITERS = {"bash": bash, "zsh": zsh, "fish": fish}
