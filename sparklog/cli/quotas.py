"""`sparklog configs` for clients and users: their quotas of bytes per second."""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.cli.actions import check_options
from sparklog.cli.administered import Administered
from sparklog.cli.output import Output
from sparklog.cli.root import administered
from sparklog.cli.usage import Arguments, CommandParser, UsageError
from sparklog.core.client_quotas import CLIENT_ID, USER, QuotaEntity

_OPTIONS: Mapping[str, str] = {"client": CLIENT_ID, "user": USER}
"""Kafka's entity types, by the options for one entity."""
KINDS: Mapping[str, str] = {f"{option}s": kind for option, kind in _OPTIONS.items()}
"""Kafka's entity types, by their names in Kafka's tools."""
_TOLD: Mapping[str, str] = {CLIENT_ID: "client-id", USER: "user-principal"}


def add_quota_options(parser: CommandParser) -> None:
    """Declare the options that name clients and users."""
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


def run(args: Arguments, added: Mapping[str, str], removed: list[str], output: Output) -> int:
    """Describe or alter quotas."""
    check_options(args, {"all": ()})
    parts = _parts(args)
    if args.action == "alter" and not (parts and (added or removed)):
        raise UsageError(
            "--alter needs a client, a user or their defaults, and --add-config or --delete-config"
        )
    with administered(args) as log:
        if args.action == "alter":
            log.alter_client_quotas(parts, _changes(added, removed))
            output.line(f"Completed updating {_updated(parts)}.")
        if args.action == "describe" or output.as_json:
            _describe(log, parts, KINDS.get(args.entity_type), output)
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
        raise UsageError("quotas are clients' and users'; leave out --topic, --broker and --group")
    parts = _shortly(args)
    named = args.entity_name is not None
    if (parts and (args.entity_type is not None or named)) or (named and args.entity_default):
        raise UsageError("say once whose quotas: by --entity-type, or by --client and --user")
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
            raise UsageError(f"a quota is a number of bytes per second: {key}={text}") from None
    return changes


def _describe(
    log: Administered, parts: Mapping[str, str | None], kind: str | None, output: Output
) -> None:
    for entity, values in sorted(log.client_quotas().items(), key=str):
        if (parts and dict(entity) != parts) or (kind is not None and kind not in dict(entity)):
            continue
        told = ", ".join(f"{key}={value}" for key, value in sorted(values.items()))
        output.line(f"Quota configs for {_called(entity)} are {told}")
        output.document({"entity": dict(entity), "quotas": dict(values)})


def _called(entity: QuotaEntity) -> str:
    """Return the entity's text in kafka-configs, which names users before clients."""
    return ", ".join(
        f"the default {_TOLD[kind]}" if name is None else f"{_TOLD[kind]} '{name}'"
        for kind, name in reversed(entity)
    )


def _updated(parts: Mapping[str, str | None]) -> str:
    if len(parts) > 1:
        return f"config for {_called(tuple(sorted(parts.items(), key=lambda part: part[0])))}"
    ((kind, name),) = parts.items()
    option = next(option for option, known in _OPTIONS.items() if known == kind)
    return (
        f"default config for {option}s in the cluster"
        if name is None
        else (f"config for {option} {name}")
    )
