"""`sparklog configs`: kafka-configs for topics, brokers and groups, and for clients by `quotas`.

For clients and users, `sparklog configs` handles their quotas of bytes and partitions per second,
and for IP addresses the connections per second.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from sparklog.cli.arguments import (
    Arguments,
    CommandParser,
    UsageError,
    add_actions,
    check_options,
    key_values,
)
from sparklog.cli.output import Output
from sparklog.cli.target import AdminTarget, add_log_options, administered, bootstrap_of
from sparklog.client.values import ConfigResource, ConfigValue
from sparklog.cluster.metadata.records import EVERY_BROKER
from sparklog.core.quotas import CLIENT_ID, IP, USER, QuotaEntity

_OPTIONS: Mapping[str, str] = {"client": CLIENT_ID, "user": USER, "ip": IP}
"""Kafka's entity types, by the options for one entity."""
KINDS: Mapping[str, str] = {f"{option}s": kind for option, kind in _OPTIONS.items()}
"""Kafka's entity types, by their names in Kafka's tools."""
_KAFKAS_NAMES: Mapping[str, str] = {CLIENT_ID: "client-id", USER: "user-principal", IP: "ip"}


def add_quota_options(parser: CommandParser) -> None:
    """Declare the options that name clients, users and IP addresses."""
    for option, kind in _OPTIONS.items():
        parser.add_argument(
            f"--{option}",
            metavar="NAME",
            help=f"short for --entity-type {option}s --entity-name: quotas of one {kind}",
        )
        parser.add_argument(
            f"--{option}-defaults",
            action="store_true",
            help=f"quotas of every {kind} that has none of its own",
        )


def is_asked(args: Arguments) -> bool:
    """Return True if a call is about quotas."""
    return args.entity_type in KINDS or bool(_shortly(args))


def quotas_run(
    args: Arguments, added: Mapping[str, str], removed: list[str], output: Output
) -> int:
    """Describe or alter quotas."""
    check_options(args, {"all": ()})
    parts = _parts(args)
    if args.action == "alter" and not (parts and (added or removed)):
        raise UsageError(
            "--alter needs a client, a user, an IP address or their defaults, "
            "and --add-config or --delete-config"
        )
    with administered(args) as log:
        if args.action == "alter":
            log.alter_client_quotas(parts, _changes(added, removed))
            output.line(f"Completed updating {_updated(parts)}.")
        if args.action == "describe" or output.as_json:
            _quotas_describe(log, parts, KINDS.get(args.entity_type), output)
    return 0


def _shortly(args: Arguments) -> dict[str, str | None]:
    parts: dict[str, str | None] = {}
    for option, kind in _OPTIONS.items():
        name, is_default = getattr(args, option), getattr(args, f"{option}_defaults")
        if name is not None and is_default:
            raise UsageError(f"--{option} and --{option}-defaults are two things; give one")
        if name is not None or is_default:
            parts[kind] = name
    return parts


def _parts(args: Arguments) -> dict[str, str | None]:
    """Return the entity of a call: names by type, None for a default; empty for all entities."""
    if any(word is not None for word in (args.topic, args.broker, args.group)):
        raise UsageError(
            "quotas have no topic, broker or group; leave out --topic, --broker and --group"
        )
    parts = _shortly(args)
    named = args.entity_name is not None
    if (parts and (args.entity_type is not None or named)) or (named and args.entity_default):
        raise UsageError("say once whose quotas: by --entity-type, or by --client, --user and --ip")
    if named or args.entity_default:
        return {KINDS[args.entity_type]: args.entity_name}
    return parts


def _changes(added: Mapping[str, str], removed: list[str]) -> dict[str, float | None]:
    changes: dict[str, float | None] = dict.fromkeys(removed)
    for key, text in added.items():
        if key in changes:
            raise UsageError(f"{key} is set and deleted in one call")
        try:
            changes[key] = float(text)
        except ValueError:
            raise UsageError(f"a quota is a number per second: {key}={text}") from None
    return changes


def _quotas_describe(
    log: AdminTarget, parts: Mapping[str, str | None], kind: str | None, output: Output
) -> None:
    for entity, values in sorted(log.client_quotas().items(), key=str):
        if (parts and dict(entity) != parts) or (kind is not None and kind not in dict(entity)):
            continue
        values_text = ", ".join(f"{key}={value}" for key, value in sorted(values.items()))
        output.line(f"Quota configs for {_quotas_called(entity)} are {values_text}")
        output.document({"entity": dict(entity), "quotas": dict(values)})


def _quotas_called(entity: QuotaEntity) -> str:
    """Return the entity's text in kafka-configs, which names users before clients."""
    return ", ".join(
        f"the default {_KAFKAS_NAMES[kind]}" if name is None else f"{_KAFKAS_NAMES[kind]} '{name}'"
        for kind, name in reversed(entity)
    )


def _updated(parts: Mapping[str, str | None]) -> str:
    if len(parts) > 1:
        return (
            f"config for {_quotas_called(tuple(sorted(parts.items(), key=lambda part: part[0])))}"
        )
    ((kind, name),) = parts.items()
    option = next(option for option, known in _OPTIONS.items() if known == kind)
    return (
        f"default config for {option}s in the cluster"
        if name is None
        else (f"config for {option} {name}")
    )


_ENTITIES = {
    "topics": ConfigResource.TOPIC,
    "brokers": ConfigResource.BROKER,
    "groups": ConfigResource.GROUP,
}
_ACTIONS_OF_OPTION = {"add_config": ("alter",), "delete_config": ("alter",), "all": ("describe",)}


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    add_actions(parser, {"describe": "show settings", "alter": "change settings"})
    parser.add_argument("--entity-type", choices=[*_ENTITIES, *KINDS], help="what has the settings")
    parser.add_argument(
        "--entity-name",
        metavar="NAME",
        help="the topic, broker's id, group, client id, user or IP address; all without it",
    )
    parser.add_argument("--topic", help="short for --entity-type topics --entity-name")
    parser.add_argument(
        "--broker", metavar="ID", help="short for --entity-type brokers --entity-name"
    )
    parser.add_argument(
        "--group", metavar="ID", help="short for --entity-type groups --entity-name"
    )
    parser.add_argument(
        "--entity-default",
        action="store_true",
        help="what topics have that set nothing themselves (brokers), or clients, users and ips",
    )
    add_quota_options(parser)
    parser.add_argument(
        "--all", action="store_true", help="with --describe: settings that have their defaults, too"
    )
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
    add_log_options(parser)


def run(args: Arguments, output: Output) -> int:
    """Describe or alter."""
    removed = [word.strip() for given in args.delete_config for word in given.split(",")]
    if is_asked(args):
        check_options(args, _ACTIONS_OF_OPTION)
        return quotas_run(args, _added(args.add_config), removed, output)
    kind, name = _entity(args)
    changes = bool(args.add_config or args.delete_config)
    check_options(args, _ACTIONS_OF_OPTION)
    if args.action == "alter" and (name is None or not changes):
        raise UsageError(f"--alter needs a {kind.value}, and --add-config or --delete-config")
    of_all_topics = kind is ConfigResource.BROKER and name == EVERY_BROKER
    if kind is not ConfigResource.TOPIC and not of_all_topics and bootstrap_of(args) is None:
        raise UsageError(
            f"settings of {kind.value}s are asked of the brokers; give --bootstrap-server"
        )
    with administered(args) as log:
        if name is not None and args.action == "alter":
            log.alter_configs(name, _added(args.add_config), removed, kind=kind)
            output.line(f"Completed updating {_called('config', kind, name)}.")
            if output.as_json:
                output.document({kind.value: name, "configs": _explicit(log, kind, name)})
            return 0
        names = [name] if name is not None else _names(log, kind)
        for found, settings in sorted(log.configs(kind, names).items()):
            _describe(kind, found, settings, args, output)
    return 0


def _names(log: AdminTarget, kind: ConfigResource) -> list[str]:
    if kind is ConfigResource.TOPIC:
        return log.topic_names()
    if kind is ConfigResource.GROUP:
        return log.groups_with_configs()
    return [str(broker.broker_id) for broker in log.brokers()]


def _explicit(log: AdminTarget, kind: ConfigResource, name: str) -> dict[str, str | None]:
    return {s.name: s.value for s in log.configs(kind, [name])[name] if _is_set(s, name)}


def _is_set(setting: ConfigValue, name: str) -> bool:
    return setting.set_here or name == EVERY_BROKER


def _called(configs: str, kind: ConfigResource, name: str) -> str:
    if name == EVERY_BROKER:
        return f"default {configs} for {kind.value}s in the cluster"
    return f"{configs} for {kind.value} {name}"


def _entity(args: Arguments) -> tuple[ConfigResource, str | None]:
    if args.entity_default:
        if args.entity_type != "brokers" or any(
            (args.topic, args.broker, args.group, args.entity_name)
        ):
            raise UsageError("--entity-default goes with --entity-type brokers, and no name")
        return ConfigResource.BROKER, EVERY_BROKER
    short = [
        (kind, value)
        for kind in _ENTITIES.values()
        if (value := getattr(args, kind.value)) is not None
    ]
    if len(short) > 1 or (short and args.entity_name is not None):
        raise UsageError("--topic, --broker, --group and --entity-name say the same; give one")
    if short:
        if args.entity_type is not None and _ENTITIES[args.entity_type] is not short[0][0]:
            raise UsageError(
                f"--{short[0][0].value} is not one of --entity-type {args.entity_type}"
            )
        return short[0]
    if args.entity_type is None:
        raise UsageError("which settings? give --entity-type topics, or --topic")
    return _ENTITIES[args.entity_type], args.entity_name


def _added(given: list[str]) -> dict[str, str]:
    """Split at commas outside brackets, and remove the brackets."""
    words = [word for one in given for word in re.split(r",(?![^\[]*\])", one) if word.strip()]
    return {
        name: value.strip().removeprefix("[").removesuffix("]")
        for name, value in key_values(words, "--add-config").items()
    }


def _describe(
    kind: ConfigResource,
    name: str,
    settings: Sequence[ConfigValue],
    args: Arguments,
    output: Output,
) -> None:
    entries = []
    output.line(f"{'All' if args.all else 'Dynamic'} {_called('configs', kind, name)} are:")
    for setting in settings:
        if not args.all and not _is_set(setting, name):
            continue
        value = "null" if setting.value is None else setting.value
        spelled = ", ".join(f"{source}:{n}={text}" for source, n, text in setting.synonyms)
        sensitive = str(setting.sensitive).lower()
        output.line(f"  {setting.name}={value} sensitive={sensitive} synonyms={{{spelled}}}")
        entries.append({"name": setting.name, "value": setting.value, "source": setting.source})
    output.document({kind.value: name, "configs": entries})
