"""Each API as a stranger, as a client with exactly the rights it needs, and as a super user."""

from __future__ import annotations

from random import Random
from typing import Any
from uuid import UUID

import pytest

from sparklog.broker.handlers import HANDLERS
from sparklog.broker.handlers.guard_table import GUARDS
from sparklog.broker.runtime.request import CloseConnection
from sparklog.protocol.api_keys import APIS, Api
from tests.harness.access_case import AccessCase
from tests.harness.access_node import ALICE, ROOT, grant, new_topic, tell_guarded
from tests.harness.access_requests import access_cases
from tests.harness.handler_node import ToyNode
from tests.harness.plain_requests import codes_of
from tests.harness.random_messages import message_types, random_entity

SEEDS = 4
DENIALS = {29, 30, 31, 53, 65}
CASES = access_cases(UUID(int=1))


def test_each_api_with_a_handler_has_a_guard() -> None:
    assert GUARDS.keys() == HANDLERS.keys()


def test_each_api_has_a_case() -> None:
    assert {one.request.__api_key__ for one in CASES} == GUARDS.keys()


def codes_in(number: int, context: Any, *, granted: bool) -> tuple[AccessCase, list[int]]:
    async def story(node: ToyNode) -> tuple[AccessCase, list[int]]:
        case = access_cases(await new_topic(node, "t"))[number]
        if granted:
            await grant(node, *case.grants)
        return case, codes_of(await node.ask(case.request, context))

    return tell_guarded(story)


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda n: CASES[n].name)
def test_a_stranger_gets_kafkas_codes(number: int) -> None:
    case, found = codes_in(number, ALICE, granted=False)
    assert found == case.stranger


@pytest.mark.parametrize("number", range(len(CASES)), ids=lambda n: CASES[n].name)
def test_a_grantee_gets_the_same_codes_as_a_super_user(number: int) -> None:
    case, as_root = codes_in(number, ROOT, granted=False)
    _, as_grantee = codes_in(number, ALICE, granted=True)
    if case.grants:
        assert not DENIALS & set(as_root)
    hidden = [29 if one == 0 and case.name == "CREATE_TOPICS-v7" else one for one in as_root]
    assert as_grantee in (as_root, hidden)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_any_request_of_a_stranger_is_answered(api: Api) -> None:
    types = [t for t in message_types() if t.__api_key__ == api and t.__name__.endswith("Request")]

    async def story(node: ToyNode) -> int:
        answered, end_offset = 0, node.metadata.image.end_offset
        for request_type in types:
            for seed in range(SEEDS):
                request: Any = random_entity(request_type, Random(seed))
                try:
                    await node.ask(request, ALICE)
                except CloseConnection:
                    assert api in {Api.PRODUCE, Api.FETCH}  # no error, or no place for one
                answered += 1
        assert node.metadata.image.end_offset == end_offset  # nothing was changed
        return answered

    assert tell_guarded(story) == len(types) * SEEDS
