"""`sparklog acls`: kafka-acls, with brokers or without.

Options, defaults and texts are those of Kafka's tool. It differs in one point: it asks nothing.
Without `--force` it does not remove all ACLs of a resource.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product

from sparklog.cli.arguments import (
    Arguments,
    CommandParser,
    UsageError,
    add_actions,
    check_needed,
    check_options,
    is_given,
    spelled,
)
from sparklog.cli.output import Output, say
from sparklog.cli.target import AdminTarget, add_log_options, administered
from sparklog.core.errors import InvalidRequest
from sparklog.security.acls import (
    ANY_HOST,
    CLUSTER_NAME,
    AclBinding,
    AclFilter,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
    check_binding,
)
from sparklog.security.principal import Principal, parse_principal

_NAMED: Mapping[str, ResourceType] = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional_id": ResourceType.TRANSACTIONAL_ID,
    "delegation_token": ResourceType.DELEGATION_TOKEN,
    "user_principal": ResourceType.USER,
}
"""Resource types by the option that names a resource."""
_ENTRY_OPTIONS = ("allow_principal", "deny_principal", "allow_host", "deny_host", "operation")
_ACTIONS_OF_OPTION = {
    **dict.fromkeys((*_ENTRY_OPTIONS, "producer", "consumer", "idempotent"), ("add", "remove")),
    "principal": ("list",),
    "force": ("remove",),
}
_PRODUCER: Mapping[ResourceType, tuple[AclOperation, ...]] = {
    ResourceType.TOPIC: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
}
_CONSUMER: Mapping[ResourceType, tuple[AclOperation, ...]] = {
    ResourceType.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE),
    ResourceType.GROUP: (AclOperation.READ,),
}


@dataclass(frozen=True, slots=True, order=True)
class ResourcePattern:
    """The resources that an ACL is about, or that a filter names."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType

    def __str__(self) -> str:
        """Return Kafka's text."""
        return (
            f"ResourcePattern(resourceType={self.resource_type.name}, name={self.name}, "
            f"patternType={self.pattern_type.name})"
        )


@dataclass(frozen=True, slots=True, order=True)
class AclEntry:
    """The part of an ACL that does not name a resource."""

    principal: str
    host: str
    operation: AclOperation
    permission: AclPermission

    def __str__(self) -> str:
        """Return Kafka's text."""
        return (
            f"(principal={self.principal}, host={self.host}, operation={self.operation.name}, "
            f"permissionType={self.permission.name})"
        )


_THE_CLUSTER = ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    add_actions(
        parser, {"list": "list ACLs", "add": "add ACLs", "remove": "remove the ACLs that match"}
    )
    for option, what in (
        ("topic", "topic"),
        ("group", "consumer group"),
        ("transactional-id", "transactional id"),
        ("delegation-token", "delegation token"),
        ("user-principal", "user whose tokens the ACL is about"),
    ):
        _repeated(parser, option, "NAME", f"name or prefix of a {what}; '*' for each")
    parser.add_argument("--cluster", action="store_true", help="the cluster itself")
    parser.add_argument(
        "--resource-pattern-type",
        choices=[pattern.name.lower() for pattern in PatternType],
        default="literal",
        help="how names are meant; any and match are not for --add (default %(default)s)",
    )
    for option in ("allow", "deny"):
        _repeated(parser, f"{option}-principal", "User:NAME", f"{option} this user; User:* for all")
        _repeated(
            parser,
            f"{option}-host",
            "ADDRESS",
            f"address or network, such as 10.0.0.0/8, of --{option}-principal (default *)",
        )
    parser.add_argument(
        "--operation",
        action="append",
        default=[],
        type=_operation,
        metavar="NAME",
        help="an operation, such as Read; may be repeated (default All)",
    )
    _repeated(parser, "principal", "User:NAME", "list only ACLs of this user")
    parser.add_argument("--producer", action="store_true", help="what a producer to --topic needs")
    parser.add_argument(
        "--consumer", action="store_true", help="what a consumer of --topic in --group needs"
    )
    parser.add_argument(
        "--idempotent", action="store_true", help="with --producer: IdempotentWrite on the cluster"
    )
    parser.add_argument(
        "--force", action="store_true", help="with --remove: also all ACLs of a resource"
    )
    add_log_options(parser)


def _repeated(parser: CommandParser, option: str, metavar: str, help_text: str) -> None:
    parser.add_argument(f"--{option}", action="append", default=[], metavar=metavar, help=help_text)


def _operation(text: str) -> AclOperation:
    """Return the operation of a name such as `DescribeConfigs` or `describe_configs`."""
    wanted = text.strip().replace("_", "").lower()
    for operation in AclOperation:
        if operation.name.replace("_", "").lower() == wanted and operation != AclOperation.ANY:
            return operation
    names = ", ".join(one.name for one in AclOperation if one != AclOperation.ANY)
    raise argparse.ArgumentTypeError(f"no such operation: {text!r}; choose from {names}")


def run(args: Arguments, output: Output) -> int:
    """List, add or remove ACLs."""
    _check(args)
    wanted = _wanted(args) if args.action != "list" else {}
    with administered(args) as log:
        if args.action == "add":
            _add(log, wanted, output)
        elif args.action == "remove":
            _remove(log, wanted, output)
        else:
            _list(log, args, output)
    return 0


def _check(args: Arguments) -> None:
    check_options(args, _ACTIONS_OF_OPTION)
    for effect in ("allow", "deny"):
        host, principal = f"{effect}_host", f"{effect}_principal"
        if is_given(args, host) and not is_given(args, principal):
            raise UsageError(f"{spelled(host)} needs {spelled(principal)}")
    for role, needed in (("producer", ("topic",)), ("consumer", ("topic", "group"))):
        if not is_given(args, role):
            continue
        check_needed(args, needed)
        for option in ("operation", "deny_principal", "deny_host"):
            if is_given(args, option):
                raise UsageError(f"--{role} stands for operations to allow; no {spelled(option)}")
    if args.idempotent and not args.producer:
        raise UsageError("--idempotent goes with --producer")
    if args.cluster and args.resource_pattern_type != "literal":
        raise UsageError("--cluster is one resource; it takes no --resource-pattern-type")
    if args.action == "add":
        if args.resource_pattern_type in ("any", "match"):
            raise UsageError("--add takes --resource-pattern-type literal or prefixed")
        if not (args.allow_principal or args.deny_principal):
            raise UsageError("--add needs --allow-principal or --deny-principal")
    if args.action == "remove" and not (args.allow_principal or args.deny_principal or args.force):
        raise UsageError(
            "--remove without --allow-principal and --deny-principal removes all ACLs of a "
            "resource; add --force to do so"
        )


def _patterns(args: Arguments) -> list[ResourcePattern]:
    pattern_type = PatternType[args.resource_pattern_type.upper()]
    patterns = [
        ResourcePattern(resource_type, name.strip(), pattern_type)
        for option, resource_type in _NAMED.items()
        for name in getattr(args, option)
    ]
    return [*patterns, _THE_CLUSTER] if args.cluster else patterns


def _wanted(args: Arguments) -> dict[ResourcePattern, list[AclEntry]]:
    """Return the entries to add or to remove; no entry stands for each."""
    patterns = _patterns(args)
    if not patterns:
        raise UsageError(
            f"{spelled(args.action)} needs a resource: --topic, --group, --transactional-id, "
            "--cluster, --delegation-token or --user-principal"
        )
    if not (args.producer or args.consumer):
        operations = args.operation or [AclOperation.ALL]
        return {pattern: _entries(args, operations) for pattern in patterns}
    wanted: dict[ResourcePattern, list[AclEntry]] = {}
    roles = [role for role, on in ((_PRODUCER, args.producer), (_CONSUMER, args.consumer)) if on]
    for role, pattern in product(roles, patterns):
        if pattern.resource_type in role:
            entries = _entries(args, role[pattern.resource_type])
            wanted[pattern] = list(dict.fromkeys([*wanted.get(pattern, ()), *entries]))
    if args.idempotent:
        wanted[_THE_CLUSTER] = _entries(args, [AclOperation.IDEMPOTENT_WRITE])
    return wanted


def _entries(args: Arguments, operations: Sequence[AclOperation]) -> list[AclEntry]:
    return [
        AclEntry(str(principal), host, operation, permission)
        for principals, hosts, permission in (
            (args.allow_principal, args.allow_host, AclPermission.ALLOW),
            (args.deny_principal, args.deny_host, AclPermission.DENY),
        )
        for principal, operation, host in product(
            map(_principal, principals), operations, [h.strip() for h in hosts] or [ANY_HOST]
        )
    ]


def _principal(text: str) -> Principal:
    try:
        return parse_principal(text.strip())
    except InvalidRequest as error:
        raise UsageError(str(error)) from error


def _add(
    log: AdminTarget, wanted: Mapping[ResourcePattern, list[AclEntry]], output: Output
) -> None:
    acls = {
        pattern: [_binding(pattern, entry) for entry in entries]
        for pattern, entries in wanted.items()
    }
    for acl in (acl for bindings in acls.values() for acl in bindings):
        check_binding(acl)
    known = set(log.acls())
    log.create_acls([acl for bindings in acls.values() for acl in bindings])
    for pattern, bindings in acls.items():
        for acl in bindings:
            if acl in known:
                output.line(f"Acl (pattern={pattern}, entry={_entry_of(acl)}) already exists.")
            output.document({**_document(acl), "created": acl not in known})
        added = [acl for acl in bindings if acl not in known]
        if added:
            _print(f"Adding ACLs for resource `{pattern}`:", added, output)


def _remove(
    log: AdminTarget, wanted: Mapping[ResourcePattern, list[AclEntry]], output: Output
) -> None:
    filters = []
    for pattern, entries in wanted.items():
        each = AclFilter(pattern.resource_type, pattern.name, pattern.pattern_type)
        filters += [
            replace(
                each,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission=entry.permission,
            )
            for entry in entries
        ] or [each]
    deleted = log.delete_acls(filters)
    if not deleted:
        say("note: no ACL matches; `sparklog acls --list` shows those that exist")
    for pattern, removed in _by_pattern(deleted):
        _print(f"Removed ACLs for resource `{pattern}`:", removed, output)
        for acl in removed:
            output.document({**_document(acl), "deleted": True})


def _list(log: AdminTarget, args: Arguments, output: Output) -> None:
    patterns = _patterns(args)
    filters = [AclFilter(p.resource_type, p.name, p.pattern_type) for p in patterns]
    found = [acl for acl in log.acls() if not filters or any(one.matches(acl) for one in filters)]
    if not args.principal:
        _print_current(found, output)
    for principal in dict.fromkeys(map(_principal, args.principal)):
        output.line(f"ACLs for principal `{principal}`")
        _print_current([acl for acl in found if acl.principal == principal], output)


def _print_current(acls: Iterable[AclBinding], output: Output) -> None:
    for pattern, current in _by_pattern(acls):
        _print(f"Current ACLs for resource `{pattern}`:", current, output)
        for acl in current:
            output.document(_document(acl))


def _print(title: str, acls: Sequence[AclBinding], output: Output) -> None:
    output.line(title)
    for acl in acls:
        output.line(f"\t{_entry_of(acl)}")
    output.line("")


def _by_pattern(acls: Iterable[AclBinding]) -> Iterator[tuple[ResourcePattern, list[AclBinding]]]:
    ordered = sorted(acls, key=lambda acl: (_pattern_of(acl), _entry_of(acl)))
    for pattern, group in groupby(ordered, key=_pattern_of):
        yield pattern, list(group)


def _binding(pattern: ResourcePattern, entry: AclEntry) -> AclBinding:
    return AclBinding(
        pattern.resource_type,
        pattern.name,
        pattern.pattern_type,
        parse_principal(entry.principal),
        entry.host,
        entry.operation,
        entry.permission,
    )


def _pattern_of(acl: AclBinding) -> ResourcePattern:
    return ResourcePattern(acl.resource_type, acl.resource_name, acl.pattern_type)


def _entry_of(acl: AclBinding) -> AclEntry:
    return AclEntry(str(acl.principal), acl.host, acl.operation, acl.permission)


def _document(acl: AclBinding) -> dict[str, str]:
    """Return an ACL as JSON values, under Kafka's names."""
    return {
        "resourceType": acl.resource_type.name,
        "name": acl.resource_name,
        "patternType": acl.pattern_type.name,
        "principal": str(acl.principal),
        "host": acl.host,
        "operation": acl.operation.name,
        "permissionType": acl.permission.name,
    }
