"""IAM as far as the policies of a log need it, and a store behind such a policy.

Source: AWS IAM, "Policy evaluation logic" and "IAM JSON policy elements: Condition operators".
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from ipaddress import ip_address, ip_network
from typing import Any

from sparklog.cluster.iam_policy import BucketRoot
from sparklog.core.errors import InvalidConfig
from sparklog.store.base import Data, ObjectInfo, ObjectNotFound, ObjectStore, PutOutcome
from sparklog.store.delegating_store import DelegatingStore


def is_allowed(
    document: Mapping[str, Any],
    action: str,
    resource: str,
    *,
    prefix: str | None = None,
    source_ip: str = "192.0.2.1",
) -> bool:
    """Return whether a policy allows a request; a denial wins."""
    effects = [
        statement["Effect"]
        for statement in document["Statement"]
        if statement["Action"] == action
        and any(_matches(pattern, resource) for pattern in statement["Resource"])
        and _applies(statement.get("Condition", {}), prefix, source_ip)
    ]
    return "Allow" in effects and "Deny" not in effects


def _applies(condition: Mapping[str, Any], prefix: str | None, source_ip: str) -> bool:
    for operator, wanted in condition.items():
        ((key, values),) = wanted.items()
        match operator, key:
            case "StringLike", "s3:prefix":
                holds = prefix is not None and any(_matches(value, prefix) for value in values)
            case "Null", "s3:prefix":
                holds = (prefix is None) == (values == "true")
            case "IpAddress", "aws:SourceIp":
                holds = any(ip_address(source_ip) in ip_network(value) for value in values)
            case _:
                raise AssertionError(f"no such condition here: {operator} {key}")
        if not holds:
            return False
    return True


def _matches(pattern: str, text: str) -> bool:
    parts = (".*" if c == "*" else "." if c == "?" else re.escape(c) for c in pattern)
    return re.fullmatch("".join(parts), text) is not None


class GuardedStore(DelegatingStore):
    """A store whose caller has a policy; it rejects requests as S3 does."""

    def __init__(self, store: ObjectStore, document: Mapping[str, Any], root: BucketRoot) -> None:
        """Guard `store`, whose objects have the keys of `root`."""
        super().__init__(store)
        self._document = document
        self._root = root

    def get(self, key: str, start: int | None = None, end: int | None = None) -> bytes:
        """See `ObjectStore.get`."""
        self._check("s3:GetObject", self._root.arn(key))
        try:
            return self._store.get(key, start, end)
        except ObjectNotFound:
            self._check("s3:ListBucket", self._root.bucket_arn)
            raise

    def head(self, key: str) -> ObjectInfo:
        """See `ObjectStore.head`."""
        self._check("s3:GetObject", self._root.arn(key))
        try:
            return self._store.head(key)
        except ObjectNotFound:
            self._check("s3:ListBucket", self._root.bucket_arn)
            raise

    def put_if_absent(self, key: str, data: Data) -> PutOutcome:
        """See `ObjectStore.put_if_absent`."""
        self._check("s3:PutObject", self._root.arn(key))
        return self._store.put_if_absent(key, data)

    def put(self, key: str, data: bytes) -> None:
        """See `ObjectStore.put`."""
        self._check("s3:PutObject", self._root.arn(key))
        self._store.put(key, data)

    def list(self, prefix: str, start_after: str = "") -> Iterator[ObjectInfo]:
        """See `ObjectStore.list`."""
        self._check("s3:ListBucket", self._root.bucket_arn, self._root.key(prefix))
        return self._store.list(prefix, start_after)

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        self._check("s3:DeleteObject", self._root.arn(key))
        self._store.delete(key)

    def _check(self, action: str, resource: str, prefix: str | None = None) -> None:
        if not is_allowed(self._document, action, resource, prefix=prefix):
            raise InvalidConfig(f"access denied. action={action} resource={resource}")
