"""`sparklog groups` for share groups: kafka-share-groups.

A share group has one start offset for each partition, and a lag of records that are not finished.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from sparklog.cli.arguments import Arguments, UsageError
from sparklog.cli.console.group_filter import parse_topic
from sparklog.cli.console.group_tables import state_document
from sparklog.cli.console.share_group_tables import (
    share_member_lines,
    share_offset_lines,
    share_state_lines,
    topic_deletion_lines,
)
from sparklog.cli.output import Output, say
from sparklog.client.values import GroupDescription, GroupMember
from sparklog.core.errors import SparklogError

if TYPE_CHECKING:
    from sparklog.client.admin import Admin

ShareGroupsFound = Mapping[str, GroupDescription]


def shares_among(admin: Admin, group_ids: Sequence[str]) -> dict[str, GroupDescription]:
    """Return the descriptions of those of these groups that are share groups."""
    if not group_ids or not admin.offers_share_groups():
        return {}
    found = admin.share_groups.describe(group_ids)
    return {g: group for g, group in found.items() if not isinstance(group, SparklogError)}


def describe_shares(admin: Admin, groups: ShareGroupsFound, args: Arguments, output: Output) -> int:
    """Describe share groups; continue after one that fails."""
    failed = 0
    for group_id, group in sorted(groups.items()):
        if args.state is not None:
            _warn(group)
            _print(output, share_state_lines(group, verbose=args.verbose))
            output.document(state_document(group))
        elif args.members:
            _warn(group)
            if group.members:
                _print(output, share_member_lines(group, verbose=args.verbose))
            for member in group.members:
                output.document(_member_document(group, member))
        else:
            failed += _describe_offsets(admin, group_id, args, output)
    return 1 if failed else 0


def _describe_offsets(admin: Admin, group_id: str, args: Arguments, output: Output) -> int:
    found = admin.share_groups.offsets([group_id])[group_id]
    if isinstance(found, SparklogError):
        output.flush()
        say(f"error: {found}")
        return 1
    _print(output, share_offset_lines(group_id, found, verbose=args.verbose))
    for tp, at in sorted(found.items()):
        output.document(
            {
                "group": group_id,
                "topic": tp.topic,
                "partition": tp.partition,
                "leaderEpoch": at.leader_epoch if at.leader_epoch >= 0 else None,
                "startOffset": at.offset,
                "lag": at.lag,
            }
        )
    return 0


def delete_share_offsets(admin: Admin, group_id: str, words: Sequence[str], output: Output) -> int:
    """Delete the offsets of whole topics."""
    for word in words:
        if parse_topic(word)[1] is not None:
            raise UsageError(f"a share group forgets whole topics, not partitions: {word}")
    outcomes = admin.share_groups.delete_offsets(group_id, words)
    failed = [topic for topic, failure in outcomes.items() if failure is not None]
    _print(output, topic_deletion_lines(outcomes))
    for topic, failure in sorted(outcomes.items()):
        output.document(
            {"group": group_id, "topic": topic}
            | ({"deleted": True} if failure is None else {"error": str(failure)})
        )
    output.flush()
    if failed:
        say(f"error: offsets of {len(failed)} of {len(outcomes)} topics were not deleted")
    return 1 if failed else 0


def _warn(group: GroupDescription) -> None:
    if not group.members:
        say(f"Share group '{group.group_id}' has no active members.")


def _print(output: Output, lines: Sequence[str]) -> None:
    for line in lines:
        output.line(line)


def _member_document(group: GroupDescription, member: GroupMember) -> dict[str, object]:
    return {
        "group": group.group_id,
        "consumerId": member.member_id,
        "host": member.host,
        "clientId": member.client_id,
        "epoch": member.epoch,
        "assignment": [[tp.topic, tp.partition] for tp in sorted(member.assignment)],
    }
