"""A broker with an authorizer for tests of handlers, and clients with and without rights."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.request import RequestContext
from sparklog.cluster.metadata import changes
from sparklog.cluster.metadata.access_changes import AclDeletion, NewAcls
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import Record
from sparklog.core.config.broker import STANDARD_AUTHORIZER
from sparklog.core.entropy import new_topic_id
from sparklog.protocol.topic_ids import uuid_of
from sparklog.security.acls import AclBinding, AclFilter, AclPermission, PatternType
from sparklog.security.principal import USER, Principal
from tests.harness.access_case import Grant
from tests.harness.handler_node import ToyNode, tell

Result = TypeVar("Result")
HOST = "10.0.0.7"
CLIENT = Principal(USER, "alice")
ALICE = RequestContext("client", HOST, CLIENT)
ROOT = RequestContext("client", HOST, Principal(USER, "root"))
SETTINGS = {"authorizer_class_name": STANDARD_AUTHORIZER, "super_users": "User:root"}


def tell_guarded(story: Callable[[ToyNode], Awaitable[Result]], **settings: str) -> Result:
    """Run a story against a broker with an authorizer, where `User:root` may do everything."""
    merged = {**SETTINGS, **settings}
    return tell(story, brokers=(1,), **merged)


async def new_topic(node: ToyNode, name: str, partitions: int = 1) -> UUID:
    """Create a topic in the metadata and return its id."""
    topic_id = new_topic_id(node.environment.entropy)
    create = partial(changes.create_topic, name=name, topic_id=topic_id, partitions=partitions)
    await node.metadata.decide(lambda image: create(image, configs={}, by_cluster=True))
    return uuid_of(topic_id)


async def grant(
    node: ToyNode | BrokerNode,
    *grants: Grant,
    permission: AclPermission = AclPermission.ALLOW,
    host: str = "*",
) -> None:
    """Give Alice rights, or take them away with the permission DENY."""

    def decide(image: MetadataImage) -> list[Record]:
        known, first = NewAcls(image), len(image.acls)
        return [
            record
            for number, (operation, kind, name) in enumerate(grants, first)
            for record in known.create(
                AclBinding(kind, name, PatternType.LITERAL, CLIENT, host, operation, permission),
                f"{number:032x}",
            )
        ]

    await node.metadata.decide(decide)


async def revoke_all(node: ToyNode) -> None:
    """Delete all ACLs."""
    await node.metadata.decide(lambda image: AclDeletion(image).delete(AclFilter())[0])


def names_of(answer: Any) -> list[str]:
    """Return the names of the topics of an answer."""
    return [one.name for one in answer.topics]
