"""`sparklog iam-policy`: the AWS policy with the least rights for what ACLs grant.

ACLs guard brokers only. A process that opens the bucket itself needs this policy.
"""

from __future__ import annotations

import json

from sparklog.cli.arguments import Arguments, CommandParser, UsageError
from sparklog.cli.output import Output, say
from sparklog.cli.target import add_root_options, opened_log, root_of
from sparklog.cluster.iam_policy import POLICY_CHARS_MAX, bucket_root, iam_policy
from sparklog.core.errors import InvalidRequest
from sparklog.security.principal import Principal, parse_principal


def configure(parser: CommandParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--principal", metavar="User:NAME", required=True, help="whose ACLs on topics"
    )
    parser.add_argument(
        "--no-metadata",
        action="store_true",
        help="leave out the metadata log; then only other Arrow readers can use the policy",
    )
    parser.add_argument(
        "--for-root",
        metavar="URL",
        help="s3://bucket/prefix in the policy (default the root itself)",
    )
    add_root_options(parser)


def run(args: Arguments, output: Output) -> int:
    """Print the policy."""
    principal = _principal(args.principal)
    with opened_log(args) as log:
        place = bucket_root(args.for_root or root_of(args) or "")
        policy = iam_policy(log.refresh(), principal, place, with_metadata=not args.no_metadata)
    for note in policy.notes:
        say(note)
    size = sum(not character.isspace() for character in json.dumps(policy.document))
    if size > POLICY_CHARS_MAX:
        say(f"note: IAM takes policies up to {POLICY_CHARS_MAX} characters. characters={size}")
    output.line(json.dumps(policy.document, indent=2))
    output.document(policy.document)
    return 0


def _principal(text: str) -> Principal:
    try:
        return parse_principal(text.strip())
    except InvalidRequest as error:
        raise UsageError(str(error)) from error
