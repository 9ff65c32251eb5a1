"""An AWS IAM policy with the least rights in the bucket for what ACLs grant. Pure.

ACLs guard brokers and IAM guards the bucket. A process that reads or appends without a broker, such
as a Spark job, needs rights in the bucket. The policy gives it those for the topics of its ACLs.

A policy has fewer words than ACLs. If both differ, the policy grants less, with three exceptions.
A writer may read its topics, since S3 has one right for the footer and the records of an object.
Each holder may list the names of all objects. S3 answers 403 instead of 404 for an absent object to
a caller without that right, and sparklog needs the 404. Each sparklog may create usage reports, and
read none, so that the console's bill has its requests.

Source: the service authorization reference of Amazon S3; FORMAT.md 1 for the names of objects.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sparklog.cluster.metadata.image import MetadataImage
from sparklog.core.errors import InvalidConfig, InvalidRequest, ResourceNotFound
from sparklog.core.topic_names import AUDIT_TOPIC, CLOSED_TOPICS, METADATA_TOPIC
from sparklog.log.layout import (
    COMMITS_PREFIX,
    FOLDER_NAME_MAX,
    METADATA_TOPIC_ID,
    TOPICS_PREFIX,
    USAGE_PREFIX,
    topic_folder,
)
from sparklog.security.acls import (
    ANY_HOST,
    ANY_NAME,
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from sparklog.security.principal import EVERY_USER, Principal
from sparklog.store.base import check_key
from sparklog.store.probe import PROBE_PREFIX
from sparklog.store.root_url import parse_root_url

POLICY_CHARS_MAX: Final = 6144
"""Characters without blanks that IAM takes for a managed policy."""
_READ: Final = frozenset({AclOperation.READ, AclOperation.ALL})
_WRITE: Final = frozenset({AclOperation.WRITE, AclOperation.ALL})
_TOPIC_CHARS: Final = re.compile(r"[A-Za-z0-9._-]*")
_WRITTEN_FOLDERS: Final = ("log", "staged")
_METADATA_NOTE: Final = (
    "note: the policy lets its holder read the metadata log, without which sparklog finds no "
    "topic. That log has the keys of users and the secret of the brokers; --no-metadata leaves "
    "it out"
)


@dataclass(frozen=True, slots=True)
class BucketRoot:
    """The place of a log in S3."""

    bucket: str
    prefix: str
    """Without a slash at its end; empty for the whole bucket."""

    def key(self, pattern: str) -> str:
        """Return the full key of a pattern that is relative to the root."""
        return f"{self.prefix}/{pattern}" if self.prefix else pattern

    def arn(self, pattern: str) -> str:
        """Return the ARN of the objects that a pattern relative to the root stands for."""
        return f"{self.bucket_arn}/{self.key(pattern)}"

    @property
    def bucket_arn(self) -> str:
        """Return the ARN of the bucket."""
        return f"arn:aws:s3:::{self.bucket}"


def bucket_root(url: str) -> BucketRoot:
    """Return the place of a root. Its characters are never wildcards of a policy.

    Raises:
        InvalidConfig: not `s3://bucket/prefix`.
    """
    root = parse_root_url(url)
    if root.scheme != "s3" or not root.bucket:
        raise InvalidConfig(f"IAM guards buckets; name s3://bucket/prefix. root={url}")
    prefix = root.path.removesuffix("/")
    try:
        check_key(prefix or "root")
    except InvalidRequest as error:
        raise InvalidConfig(f"not a prefix for keys. root={url} ({error})") from error
    return BucketRoot(root.bucket, prefix)


@dataclass(slots=True)
class IamPolicy:
    """A policy document, and what its reader should know."""

    document: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, order=True)
class _TopicNames:
    """The names of topics that an ACL is about."""

    name: str
    is_prefix: bool

    def covers(self, other: _TopicNames) -> bool:
        """Return True if each name of `other` is a name of this pattern."""
        return other.name.startswith(self.name) if self.is_prefix else other == self

    def takes(self, name: str) -> bool:
        """Return True if a topic's name is one of this pattern."""
        return self.covers(_TopicNames(name, is_prefix=False))


_ALL_TOPICS: Final = _TopicNames("", is_prefix=True)

Granted = Mapping[_TopicNames, frozenset[str]]
"""Addresses and networks from which a pattern is granted; `*` alone for each."""


def iam_policy(
    image: MetadataImage, principal: Principal, root: BucketRoot, *, with_metadata: bool = True
) -> IamPolicy:
    """Return the policy for a principal's ACLs on topics, as the topics are now.

    Args:
        image: the metadata, with ACLs and topics.
        principal: whose ACLs; those of each user count, too.
        root: the log's place.
        with_metadata: also grant to read the metadata log, which sparklog needs.

    Raises:
        ResourceNotFound: no ACL grants reads or writes of a topic.
    """
    denied = _denied(image.acls.values(), principal)
    reads = _granted(image.acls.values(), principal, _READ, denied[_READ])
    writes = _granted(image.acls.values(), principal, _WRITE, denied[_WRITE])
    if not reads and not writes:
        raise ResourceNotFound(
            f"no ACL lets the principal read or write a topic. principal={principal}"
        )
    policy = IamPolicy()
    builder = _StatementBuilder(image, root, policy.notes)
    builder.grant("Read", "s3:GetObject", _merged(reads, writes), ("",))
    builder.grant("Write", "s3:PutObject", writes, _WRITTEN_FOLDERS)
    if not builder.resources:
        raise ResourceNotFound(f"no topic of the ACLs exists. principal={principal}")
    builder.common(with_metadata=with_metadata, writes=bool(writes))
    builder.deny("Read", "s3:GetObject", denied[_READ], [*reads, *writes])
    builder.deny("Write", "s3:PutObject", denied[_WRITE], writes)
    builder.guard_closed_topics(writes, [*reads, *writes], with_metadata=with_metadata)
    policy.document = {"Version": "2012-10-17", "Statement": builder.statements}
    if with_metadata:
        policy.notes.insert(0, _METADATA_NOTE)
    return policy


def _denied(
    acls: Iterable[AclBinding], principal: Principal
) -> dict[frozenset[AclOperation], list[_TopicNames]]:
    """Return the denied patterns; a denial for one address counts for each, to grant less."""
    own = [acl for acl in _of_topics(acls, principal) if acl.permission == AclPermission.DENY]
    return {
        operations: sorted({_pattern_of(acl) for acl in own if acl.operation in operations})
        for operations in (_READ, _WRITE)
    }


def _granted(
    acls: Iterable[AclBinding],
    principal: Principal,
    operations: frozenset[AclOperation],
    denied: Sequence[_TopicNames],
) -> Granted:
    hosts: dict[_TopicNames, set[str]] = {}
    for acl in _of_topics(acls, principal):
        pattern = _pattern_of(acl)
        if (
            acl.permission == AclPermission.ALLOW
            and acl.operation in operations
            and not any(one.covers(pattern) for one in denied)
        ):
            hosts.setdefault(pattern, set()).add(acl.host)
    return {pattern: _least_hosts(found) for pattern, found in sorted(hosts.items())}


def _least_hosts(hosts: Iterable[str]) -> frozenset[str]:
    found = frozenset(hosts)
    return frozenset({ANY_HOST}) if ANY_HOST in found else found


def _merged(one: Granted, two: Granted) -> Granted:
    """Return what one of the two grants."""
    patterns = sorted({*one, *two})
    return {p: _least_hosts({*one.get(p, ()), *two.get(p, ())}) for p in patterns}


def _of_topics(acls: Iterable[AclBinding], principal: Principal) -> list[AclBinding]:
    """Return the ACLs of a principal whose names can be names of topics.

    Others match no topic, and their characters could be wildcards in a policy.
    """
    return [
        acl
        for acl in acls
        if acl.resource_type == ResourceType.TOPIC
        and acl.principal in (principal, EVERY_USER)
        and (acl.resource_name == ANY_NAME or _TOPIC_CHARS.fullmatch(acl.resource_name))
    ]


def _pattern_of(acl: AclBinding) -> _TopicNames:
    if acl.resource_name == ANY_NAME:
        return _ALL_TOPICS
    return _TopicNames(acl.resource_name, is_prefix=acl.pattern_type == PatternType.PREFIXED)


class _StatementBuilder:
    """Collects the statements of a policy."""

    def __init__(self, image: MetadataImage, root: BucketRoot, notes: list[str]) -> None:
        self._image = image
        self._root = root
        self._notes = notes
        self.statements: list[dict[str, Any]] = []
        self.resources: list[str] = []
        """Folders of topics that the policy lets read, relative to the root."""

    def grant(self, name: str, action: str, granted: Granted, below: Sequence[str]) -> None:
        """Allow an action below the folders of topics; one statement for the same addresses."""
        by_hosts: dict[tuple[str, ...], list[str]] = {}
        for pattern, allowed in granted.items():
            folders = self._folders(pattern)
            if folders:
                by_hosts.setdefault(tuple(sorted(allowed)), []).extend(folders)
                self.resources += [one for one in folders if one not in self.resources]
        for number, (hosts, folders) in enumerate(sorted(by_hosts.items()), 1):
            self._add(
                f"{name}Topics{number}",
                action,
                [
                    self._root.arn(f"{folder}*/{part}/*" if part else f"{folder}*")
                    for folder in folders
                    for part in below
                ],
                {} if hosts == (ANY_HOST,) else {"IpAddress": {"aws:SourceIp": list(hosts)}},
            )

    def common(self, *, with_metadata: bool, writes: bool) -> None:
        """Allow what each reader or writer needs besides its topics."""
        folders = [topic_folder(METADATA_TOPIC, METADATA_TOPIC_ID)] if with_metadata else []
        read = list(folders)
        # Readers that are not sparklog leave no reports, and need no metadata either.
        written = [
            *([COMMITS_PREFIX] if writes else []),
            *([USAGE_PREFIX] if with_metadata else []),
        ]
        if writes:
            read.append(COMMITS_PREFIX)
        if written:
            self._add("WriteCommon", "s3:PutObject", [self._root.arn(f"{p}*") for p in written])
            read.append(f"{PROBE_PREFIX}-")
        if read:
            self._add("ReadCommon", "s3:GetObject", [self._root.arn(f"{one}*") for one in read])
        listed = [self._root.key(f"{one}*") for one in (*self.resources, *folders)]
        bucket = [self._root.bucket_arn]
        self._add("List", "s3:ListBucket", bucket, {"StringLike": {"s3:prefix": listed}})
        absent = {"Null": {"s3:prefix": "true"}}
        self._add("SeeThatObjectsAreAbsent", "s3:ListBucket", bucket, absent)

    def deny(
        self, name: str, action: str, denied: Iterable[_TopicNames], granted: Iterable[_TopicNames]
    ) -> None:
        """Deny an action on the names that ACLs deny, if a wider pattern grants it."""
        wider = list(granted)
        narrower = [one for one in denied if any(pattern.covers(one) for pattern in wider)]
        if narrower:
            resources = [self._root.arn(f"{_any_folder(one)}*") for one in narrower]
            self._add(f"Deny{name}", action, resources, effect="Deny")

    def guard_closed_topics(
        self, writes: Iterable[_TopicNames], reads: Iterable[_TopicNames], *, with_metadata: bool
    ) -> None:
        """Deny what wide patterns would grant in topics that have the cluster's own state."""
        patterns, reads = list(writes), list(reads)
        closed = [name for name in sorted(CLOSED_TOPICS) if _takes(patterns, name)]
        if closed:
            resources = [self._root.arn(f"{TOPICS_PREFIX}{name}~*") for name in closed]
            self._add("DenyWriteOfInternalTopics", "s3:PutObject", resources, effect="Deny")
        wide = [*patterns, *reads]
        named = [one for one in wide if one != _ALL_TOPICS]
        if _takes(wide, AUDIT_TOPIC) and not _takes(named, AUDIT_TOPIC):
            audit = [self._root.arn(f"{TOPICS_PREFIX}{AUDIT_TOPIC}~*")]
            self._add("DenyReadOfAudit", "s3:GetObject", audit, effect="Deny")
        if not with_metadata and _takes(reads, METADATA_TOPIC):
            metadata = [self._root.arn(f"{TOPICS_PREFIX}{METADATA_TOPIC}~*")]
            self._add("DenyReadOfMetadata", "s3:GetObject", metadata, effect="Deny")

    def _add(
        self,
        sid: str,
        action: str,
        resources: list[str],
        condition: Mapping[str, Any] | None = None,
        *,
        effect: str = "Allow",
    ) -> None:
        statement: dict[str, Any] = {
            "Sid": sid,
            "Effect": effect,
            "Action": action,
            "Resource": resources,
        }
        if condition:
            statement["Condition"] = dict(condition)
        self.statements.append(statement)

    def _folders(self, pattern: _TopicNames) -> list[str]:
        """Return the folders of a pattern's topics, relative to the root.

        A prefix of a folder's name stands for topics that are created later, too.
        """
        topics = self._image.topics
        if pattern.is_prefix and len(pattern.name) <= FOLDER_NAME_MAX:
            return [f"{TOPICS_PREFIX}{pattern.name}"]
        found = [
            topic_folder(name, topic.topic_id)
            for name, topic in sorted(topics.items())
            if pattern.takes(name)
        ]
        if not found:
            note = f"note: the policy leaves out a topic that does not exist. topic={pattern.name}"
            self._notes += [note] if note not in self._notes else []
        return found


def _any_folder(pattern: _TopicNames) -> str:
    """Return the folders of names, with each topic id that there is or will be."""
    end = "" if pattern.is_prefix else "~"
    return f"{TOPICS_PREFIX}{pattern.name[:FOLDER_NAME_MAX]}{end}"


def _takes(patterns: Iterable[_TopicNames], name: str) -> bool:
    return any(pattern.takes(name) for pattern in patterns)
