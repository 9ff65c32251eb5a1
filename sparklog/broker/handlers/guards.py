"""The parts of guards: gates for a whole request, and checks of the items of a request.

GUARDS-1: a handler sees only the items that the client may name
GUARDS-2: a list that has no item left is not sent on, since an empty list may stand for everything
GUARDS-3: an answer names nothing that the client did not name and may not describe
GUARDS-4: an id of no known topic is refused here: the handler may know its topic a moment later
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from kio.schema.errors import ErrorCode

from sparklog.broker.handlers.access import Access
from sparklog.broker.handlers.refusals import (
    ItemList,
    blank_response,
    merged,
    refused,
    response_type,
)
from sparklog.broker.handlers.request_parts import UnknownTopicId, topic_of
from sparklog.broker.node.node import BrokerNode
from sparklog.broker.runtime.request import RequestContext
from sparklog.cluster.metadata.image import MetadataImage, Topic
from sparklog.core.errors import (
    ClusterAuthorizationFailed,
    GroupAuthorizationFailed,
    SparklogError,
    TopicAuthorizationFailed,
    TransactionalIdAuthorizationFailed,
)
from sparklog.security.acls import CLUSTER_NAME, AclOperation, ResourceType

DENIED: Final[dict[ResourceType, SparklogError]] = {
    ResourceType.TOPIC: TopicAuthorizationFailed("Topic authorization failed."),
    ResourceType.GROUP: GroupAuthorizationFailed("Group authorization failed."),
    ResourceType.CLUSTER: ClusterAuthorizationFailed("Cluster authorization failed."),
    ResourceType.TRANSACTIONAL_ID: TransactionalIdAuthorizationFailed(
        "Transactional Id authorization failed."
    ),
}
"""The errors by the type of the resource, in Kafka's words."""


@dataclass(frozen=True, slots=True)
class GuardedCall:
    """A request on its way to its handler, and the rights of its sender."""

    node: BrokerNode
    request: Any
    context: RequestContext
    access: Access
    handler: Callable[..., Awaitable[Any]]
    image: MetadataImage
    """The metadata when the request came."""

    async def proceed(self, request: Any = None, **more: Any) -> Any:
        """Return the handler's response to the request, or to what is left of it."""
        asked = self.request if request is None else request
        return await self.handler(self.node, asked, self.context, **more)


@dataclass(frozen=True, slots=True)
class Gate:
    """One right without which the whole request is refused."""

    operation: AclOperation
    resource_type: ResourceType
    field: str = ""
    """The field of the request with the resource's name; none for the cluster."""
    instead: AclOperation | None = None
    """Another operation on the same resource that opens the gate as well."""

    def opens(self, call: GuardedCall) -> bool:
        """Return whether the client has the right."""
        name = getattr(call.request, self.field) if self.field else CLUSTER_NAME
        may = call.access.may
        if self.instead is not None and may(self.instead, self.resource_type, name, filters=True):
            return True
        return may(self.operation, self.resource_type, name)


Resource = tuple[ResourceType, str]
FindResource = Callable[[MetadataImage, Any], Resource | None]
"""Returns the resource of an item; None for an id of no known topic."""


@dataclass(frozen=True, slots=True)
class ItemCheck:
    """One right for each item of a list."""

    operation: AclOperation
    find: FindResource
    lists: tuple[ItemList, ...]
    """One for each name that versions give to the list."""
    on_cluster: AclOperation | None = None
    """An operation on the cluster that opens the check of all items."""
    asks_for_none: bool = False
    """The handler is asked although no item is left, since it knows of other errors."""
    passes_unknown_ids: bool = False
    """The handler gets ids of no known topic. It looks topics up before it waits for anything."""

    def list_of(self, request: Any) -> ItemList:
        """Return the list that this version of the request has."""
        return next(one for one in self.lists if hasattr(request, one.asked))

    async def run(self, call: GuardedCall) -> Any:
        """Return the response to the allowed items, with errors for the others."""
        operation = self.on_cluster
        if operation is not None and call.access.may_on_cluster(operation, filters=True):
            return await call.proceed()
        itemlist = self.list_of(call.request)
        items = getattr(call.request, itemlist.asked)
        errors = self.errors(call, items)
        if not any(errors):
            return await call.proceed()
        left = tuple(item for item, error in zip(items, errors, strict=True) if error is None)
        if left or self.asks_for_none:
            response = await call.proceed(replace(call.request, **{itemlist.asked: left}))
        else:
            response = blank_response(call.request)
        if getattr(response, "error_code", ErrorCode.none) is not ErrorCode.none:
            return response
        answered = getattr(response, itemlist.answered)
        whole = with_refused(itemlist, response_type(call.request), items, errors, answered)
        return replace(response, **{itemlist.answered: whole})

    def errors(self, call: GuardedCall, items: Any) -> list[SparklogError | None]:
        """Return the error of each item, None for an allowed one."""
        resources = [self.find(call.image, item) for item in items]
        times = Counter(resources)
        denied: dict[Resource, SparklogError | None] = {}
        for resource, references in times.items():
            if resource is not None:
                kind, name = resource
                may = call.access.may(self.operation, kind, name, references=references)
                denied[resource] = None if may else DENIED[kind]
        return [
            self._unknown(item) if resource is None else denied[resource]
            for item, resource in zip(items, resources, strict=True)
        ]

    def _unknown(self, item: Any) -> SparklogError | None:
        return None if self.passes_unknown_ids else unknown_id(item)


def unknown_id(item: Any) -> SparklogError | None:
    """Return the error of an item that identifies no known topic; None if it has no id at all."""
    return None if getattr(item, "topic_id", None) is None else _UNKNOWN_ID


_UNKNOWN_ID: Final = UnknownTopicId("no topic has this id; refresh metadata.")


def with_refused(
    itemlist: ItemList,
    structure: Any,
    items: Any,
    errors: list[SparklogError | None],
    answered: Any,
) -> Any:
    """Return the answered items of a response together with the refused ones.

    Args:
        itemlist: the lists on both sides.
        structure: the structure of the response that has the list.
        items: all items of the request.
        errors: the error of each item, None for one that the handler answered.
        answered: the handler's items.
    """
    refusals = [
        one
        for item, error in zip(items, errors, strict=True)
        if error is not None
        for one in itemlist.refused(structure, (item,), error)
    ]
    return merged([error is not None for error in errors], answered, refusals)


After = Callable[[GuardedCall, Any], Any]
"""Returns what the client may see of a handler's response."""


@dataclass(frozen=True, slots=True)
class Guard:
    """Gates in their order, then the check of items, then what is done to the response."""

    gates: tuple[Gate, ...] = ()
    lists: tuple[ItemList, ...] = ()
    """The lists in which a gate's error is repeated."""
    items: ItemCheck | None = None
    after: After | None = None
    refuse: Callable[[Any, SparklogError], Any] | None = None
    """Builds the response of a closed gate, where `lists` cannot describe it."""

    async def __call__(self, call: GuardedCall) -> Any:
        """Return the response to a request."""
        for gate in self.gates:
            if not gate.opens(call):
                return self._refused(call.request, DENIED[gate.resource_type])
        response = await (call.proceed() if self.items is None else self.items.run(call))
        return response if self.after is None else self.after(call, response)

    def _refused(self, request: Any, error: SparklogError) -> Any:
        if self.refuse is not None:
            return self.refuse(request, error)
        return refused(request, error, (one for one in self.lists if hasattr(request, one.asked)))


def topic_resource(image: MetadataImage, item: Any) -> Resource | None:
    """Return the topic that an item of a request names or identifies."""
    name = topic_name(image, item)
    return None if name is None else (ResourceType.TOPIC, name)


def topic_name(image: MetadataImage, item: Any) -> str | None:
    """Return the name of the topic that an item means; None for an id of no topic."""
    if isinstance(item, str):
        return item
    found = topic_of(image, item)
    if isinstance(found, Topic):
        return found.name
    name: str | None = getattr(item, "name", None) or getattr(item, "topic", None)
    if name or getattr(item, "topic_id", None) is not None:
        return name or None
    return getattr(item, "name", getattr(item, "topic", None))


def group_resource(image: MetadataImage, item: Any) -> Resource:
    """Return the group that an item of a request is the id of."""
    return ResourceType.GROUP, item


def transactional_id_resource(image: MetadataImage, item: Any) -> Resource:
    """Return the transactional id that an item of a request is."""
    return ResourceType.TRANSACTIONAL_ID, item


_TYPES_OF_CONFIGS: Final = {2: ResourceType.TOPIC, 32: ResourceType.GROUP}
"""Topics and groups have rights of their own; other settings are the cluster's."""


def config_resource(image: MetadataImage, item: Any) -> Resource:
    """Return the resource whose settings an item of a request is about."""
    kind = _TYPES_OF_CONFIGS.get(item.resource_type)
    if kind is None:
        return ResourceType.CLUSTER, CLUSTER_NAME
    return kind, item.resource_name
