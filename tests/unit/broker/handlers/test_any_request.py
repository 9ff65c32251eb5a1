"""Well-formed requests: each, in each version, has an answer that can be encoded."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from sparklog.broker.handlers import HANDLERS
from sparklog.broker.runtime.request import CloseConnection
from sparklog.protocol.api_keys import APIS, Api
from tests.harness.handler_node import PEER, TESTER, ToyNode, tell
from tests.harness.random_messages import message_types, random_entity

SEEDS = 6


def test_every_api_has_a_handler() -> None:
    assert HANDLERS.keys() == APIS.keys()


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_any_request_is_answered(api: Api) -> None:
    types = [t for t in message_types() if t.__api_key__ == api and t.__name__.endswith("Request")]

    async def story(node: ToyNode) -> int:
        answered = 0
        for request_type in types:
            for seed in range(SEEDS):
                request: Any = random_entity(request_type, Random(seed))
                try:
                    await node.ask(request, PEER if seed % 2 else TESTER)
                except CloseConnection:
                    assert api in {Api.PRODUCE, Api.FETCH}  # no error, or no place for one
                answered += 1
        return answered

    assert tell(story) == len(types) * SEEDS
