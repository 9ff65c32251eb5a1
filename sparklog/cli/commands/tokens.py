"""`sparklog tokens`: the delegation tokens of a cluster.

A token is renewed and expired by its id, so its HMAC is never on a command line. Only `--create`
shows the HMAC, or writes it to a file that no other user can read.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sparklog.cli.arguments import Arguments, CommandParser, check_options, is_given, set_action
from sparklog.cli.output import Output
from sparklog.cli.target import add_broker_options, connected
from sparklog.core.token_errors import DelegationTokenNotFound
from sparklog.security.principal import parse_principal
from sparklog.security.sasl.delegation_tokens import DelegationToken, IssuedToken

_ACTIONS_OF_OPTION = {
    "owner_principal": ("create", "describe"),
    "renewer_principal": ("create",),
    "max_life_time_period": ("create",),
    "hmac_file": ("create",),
    "renew_time_period": ("renew",),
    "expiry_time_period": ("expire",),
}
_PRIVATE = 0o600


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    actions = parser.add_mutually_exclusive_group(required=True)
    actions.add_argument("--create", action="store_true", help="create a token")
    actions.add_argument("--describe", action="store_true", help="list tokens, without HMACs")
    actions.add_argument("--renew", metavar="ID", help="extend the life of a token")
    actions.add_argument("--expire", metavar="ID", help="end the life of a token")
    for option, help_text in (
        ("--owner-principal", "the owner of tokens; may be repeated to describe"),
        ("--renewer-principal", "a user that may renew it; may be repeated"),
    ):
        parser.add_argument(option, metavar="User:NAME", action="append", help=help_text)
    parser.add_argument(
        "--hmac-file",
        metavar="FILE",
        type=Path,
        help="a new file for the HMAC (default: standard output)",
    )
    for option, limit in (
        ("--max-life-time-period", "the longest life, in ms (default -1: the brokers' limit)"),
        ("--renew-time-period", "the new life, in ms (default -1: the brokers' limit)"),
        ("--expiry-time-period", "time until the end, in ms (default -1: at once)"),
    ):
        parser.add_argument(option, metavar="MS", type=int, help=limit)
    add_broker_options(parser)


def run(args: Arguments, output: Output) -> int:
    """Create, describe, renew or expire tokens."""
    set_action(args, ("create", "describe", "renew", "expire"))
    check_options(args, _ACTIONS_OF_OPTION)
    owners = [parse_principal(text) for text in args.owner_principal or ()]
    with connected(args) as admin:
        if args.action == "create":
            renewers = [parse_principal(text) for text in args.renewer_principal or ()]
            life_ms = _period(args.max_life_time_period)
            owner = owners[-1] if owners else None
            _show_created(args, admin.create_token(owner, renewers, life_ms), output)
            return 0
        tokens = admin.tokens(owners or None)
        if args.action == "describe":
            for one in tokens:
                output.put(_line(one.token), _document(one.token))
            return 0
        token = _named(tokens, getattr(args, args.action))
        if args.action == "renew":
            expiry_ms = admin.renew_token(token.hmac, _period(args.renew_time_period))
        else:
            expiry_ms = admin.expire_token(token.hmac, _period(args.expiry_time_period))
    token_id = token.token.token_id
    output.put(
        f"Token {token_id} expires at {_time(expiry_ms)}.",
        {"tokenId": token_id, "expiryTimestamp": expiry_ms},
    )
    return 0


def _show_created(args: Arguments, made: IssuedToken, output: Output) -> None:
    document = _document(made.token)
    if is_given(args, "hmac_file"):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with os.fdopen(os.open(args.hmac_file, flags, _PRIVATE), "w") as file:
            file.write(f"{made.password}\n")
        output.put(_line(made.token), document)
    else:
        output.put(f"{_line(made.token)} hmac={made.password}", {**document, "hmac": made.password})


def _named(tokens: list[IssuedToken], token_id: str) -> IssuedToken:
    for one in tokens:
        if one.token.token_id == token_id:
            return one
    raise DelegationTokenNotFound(f"no token of this id, or no right to see it. id={token_id!r}")


def _period(given: int | None) -> int:
    return -1 if given is None else given


def _line(token: DelegationToken) -> str:
    return (
        f"{token.token_id} owner={token.owner} requester={token.requester} "
        f"renewers={','.join(map(str, token.renewers))} issued={_time(token.issue_ms)} "
        f"expires={_time(token.expiry_ms)} max={_time(token.max_ms)}"
    )


def _document(token: DelegationToken) -> dict[str, Any]:
    return {
        "tokenId": token.token_id,
        "owner": str(token.owner),
        "requester": str(token.requester),
        "renewers": [str(one) for one in token.renewers],
        "issueTimestamp": token.issue_ms,
        "expiryTimestamp": token.expiry_ms,
        "maxTimestamp": token.max_ms,
    }


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="seconds")
