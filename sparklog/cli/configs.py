"""`sparklog configs`: kafka-configs for topics."""

from __future__ import annotations

import re

from sparklog.cli.output import Output
from sparklog.cli.root import add_root_options, opened_log
from sparklog.cli.usage import Arguments, CommandParser, UsageError, key_values
from sparklog.cluster.image import Topic
from sparklog.core.settings import TOPIC_SETTINGS, parse_topic_configs


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    actions = parser.add_mutually_exclusive_group(required=True)
    for action, help_text in (("describe", "show settings"), ("alter", "change settings")):
        actions.add_argument(
            f"--{action}", dest="action", action="store_const", const=action, help=help_text
        )
    parser.add_argument("--entity-type", choices=["topics"], help="what has the settings")
    parser.add_argument("--entity-name", metavar="NAME", help="the topic; all without it")
    parser.add_argument("--topic", help="short for --entity-type topics --entity-name")
    parser.add_argument("--all", action="store_true", help="with defaults, too")
    parser.add_argument(
        "--add-config",
        action="append",
        default=[],
        metavar="N=V,...",
        help="settings to set; a value with commas stands in [brackets]",
    )
    parser.add_argument(
        "--delete-config", action="append", default=[], metavar="N,...", help="settings to reset"
    )
    add_root_options(parser)


def run(args: Arguments, output: Output) -> int:
    """Describe or alter."""
    name = _entity(args)
    changes = bool(args.add_config or args.delete_config)
    if args.action == "describe" and changes:
        raise UsageError("--add-config and --delete-config go with --alter")
    if args.action == "alter" and args.all:
        raise UsageError("--all goes with --describe")
    if args.action == "alter" and not (name and changes):
        raise UsageError("--alter needs a topic, and --add-config or --delete-config")
    with opened_log(args) as log:
        if name is not None and args.action == "alter":
            removed = [word.strip() for given in args.delete_config for word in given.split(",")]
            topic = log.alter_configs(name, _added(args.add_config), removed)
            output.put(
                f"Completed updating config for topic {name}.",
                {"topic": name, "configs": dict(topic.configs)},
            )
            return 0
        topics = log.topics()
        for wanted in [name] if name is not None else sorted(topics):
            _describe(topics.get(wanted) or log.topic(wanted), args, output)
    return 0


def _entity(args: Arguments) -> str | None:
    if args.topic is None and args.entity_type is None:
        raise UsageError("which settings? give --entity-type topics, or --topic")
    if args.topic is not None and args.entity_name is not None:
        raise UsageError("--topic and --entity-name say the same; give one")
    name: str | None = args.topic if args.topic is not None else args.entity_name
    return name


def _added(given: list[str]) -> dict[str, str]:
    """Split at commas outside brackets, and take the brackets off."""
    words = [word for one in given for word in re.split(r",(?![^\[]*\])", one) if word.strip()]
    return {
        name: value.strip().removeprefix("[").removesuffix("]")
        for name, value in key_values(words, "--add-config").items()
    }


def _describe(topic: Topic, args: Arguments, output: Output) -> None:
    values = parse_topic_configs(topic.configs).spelled() if args.all else dict(topic.configs)
    entries = []
    output.line(f"{'All' if args.all else 'Dynamic'} configs for topic {topic.name} are:")
    for name, value in values.items():
        setting = TOPIC_SETTINGS[name]
        synonyms = [("DEFAULT_CONFIG", setting.spell(setting.default))]
        if name in topic.configs:
            synonyms.insert(0, ("DYNAMIC_TOPIC_CONFIG", topic.configs[name]))
        spelled = ", ".join(f"{source}:{name}={text}" for source, text in synonyms)
        output.line(f"  {name}={value} sensitive=false synonyms={{{spelled}}}")
        entries.append({"name": name, "value": value, "source": synonyms[0][0]})
    output.document({"topic": topic.name, "configs": entries})
