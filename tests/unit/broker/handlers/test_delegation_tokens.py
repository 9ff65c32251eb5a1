"""The requests about delegation tokens, with and without rights by ACLs."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from sparklog.broker.runtime.request import RequestContext
from sparklog.cluster.metadata import snapshot
from sparklog.cluster.metadata.access_state import token_record
from sparklog.cluster.metadata.records import encode
from sparklog.protocol.api_keys import Api
from sparklog.security.acls import AclOperation, ResourceType
from sparklog.security.principal import USER, Principal
from sparklog.security.sasl.credentials import ScramMechanism
from tests.harness.access_node import ALICE, HOST, ROOT, grant, tell_guarded
from tests.harness.handler_node import TESTER, ToyNode, tell
from tests.harness.plain_requests import plain_request

KEY_TEXT = "key of tokens"
KEY: dict[str, Any] = {"delegation_token_secret_key": KEY_TEXT}
BOB = RequestContext("client", HOST, Principal(USER, "bob"))
EVE = RequestContext("client", HOST, Principal(USER, "eve"))
SECOND = timedelta(seconds=1)
AT_ONCE = timedelta(milliseconds=-1)


async def create(node: ToyNode, context: RequestContext, version: int = 3, **values: Any) -> Any:
    values = {"max_lifetime": AT_ONCE, **values}
    return await node.ask(plain_request(Api.CREATE_DELEGATION_TOKEN, version, **values), context)


async def renew(node: ToyNode, context: RequestContext, secret: bytes, period: timedelta) -> int:
    asked = plain_request(Api.RENEW_DELEGATION_TOKEN, 2, hmac=secret, renew_period=period)
    return int((await node.ask(asked, context)).error_code)


async def expire(node: ToyNode, context: RequestContext, secret: bytes, period: timedelta) -> int:
    asked = plain_request(Api.EXPIRE_DELEGATION_TOKEN, 2, hmac=secret, expiry_time_period=period)
    return int((await node.ask(asked, context)).error_code)


async def described(node: ToyNode, context: RequestContext, version: int = 3) -> set[str]:
    asked = plain_request(Api.DESCRIBE_DELEGATION_TOKEN, version, owners=None)
    answer = await node.ask(asked, context)
    assert int(answer.error_code) == 0
    return {token.token_id for token in answer.tokens}


def owned_by(name: str) -> dict[str, Any]:
    return {"owner_principal_type": USER, "owner_principal_name": name}


def renewed_by(*names: str) -> list[dict[str, str]]:
    return [{"principal_type": USER, "principal_name": name} for name in names]


def test_each_version_creates_a_token_of_the_sender() -> None:
    async def story(node: ToyNode) -> None:
        for version in (1, 2, 3):
            answer = await create(node, ALICE, version, renewers=renewed_by("bob"))
            assert int(answer.error_code) == 0
            assert node.token_secrets is not None
            assert answer.hmac == node.token_secrets.hmac(answer.token_id)
            token = node.metadata.image.tokens[answer.token_id]
            assert (str(token.owner), str(token.requester)) == ("User:alice", "User:alice")
            assert [str(one) for one in token.renewers] == ["User:bob"]
            assert answer.max_timestamp - answer.issue_timestamp == timedelta(days=7)
            assert await described(node, ALICE, version) == set(node.metadata.image.tokens)

    tell(story, **KEY)


def test_no_record_and_no_snapshot_has_a_secret() -> None:
    async def story(node: ToyNode) -> None:
        answer = await create(node, ALICE)
        assert node.token_secrets is not None
        (token,) = node.metadata.image.tokens.values()
        records = encode([token_record(token)]).column("value").to_pylist()
        stored = b"".join((*records, snapshot.encode(node.metadata.image)))
        assert answer.token_id.encode() in stored
        for mechanism in ScramMechanism:
            found = node.token_secrets.credential(mechanism, answer.token_id)
            for secret in (answer.hmac, found.salt, found.stored_key, found.server_key):
                for spelled in (secret, base64.b64encode(secret), secret.hex().encode()):
                    assert spelled not in stored

    tell(story, **KEY)


@pytest.mark.parametrize("context", [TESTER, replace(ALICE, by_token=True)])
def test_a_client_without_an_identity_of_its_own_is_refused(context: RequestContext) -> None:
    async def story(node: ToyNode) -> None:
        secret = (await create(node, ALICE)).hmac
        assert int((await create(node, context)).error_code) == 64
        assert await renew(node, context, secret, SECOND) == 64
        assert await expire(node, context, secret, AT_ONCE) == 64
        asked = plain_request(Api.DESCRIBE_DELEGATION_TOKEN, 3, owners=None)
        answer = await node.ask(asked, context)
        assert (int(answer.error_code), answer.tokens) == (64, ())

    tell(story, **KEY)
    tell_guarded(story, **KEY)


def test_without_a_key_there_are_no_tokens() -> None:
    async def story(node: ToyNode) -> None:
        assert int((await create(node, ALICE)).error_code) == 61
        assert await renew(node, ALICE, b"x", SECOND) == 61
        assert await expire(node, ALICE, b"x", AT_ONCE) == 61
        asked = plain_request(Api.DESCRIBE_DELEGATION_TOKEN, 3, owners=None)
        assert int((await node.ask(asked, ALICE)).error_code) == 61

    tell(story)


def test_a_token_of_another_user_needs_a_right_on_that_user() -> None:
    async def story(node: ToyNode) -> None:
        denied = await create(node, ALICE, **owned_by("bob"))
        assert (int(denied.error_code), denied.principal_name) == (65, "bob")
        assert denied.hmac == b""
        assert not node.metadata.image.tokens
        await grant(node, (AclOperation.CREATE_TOKENS, ResourceType.USER, "User:bob"))
        allowed = await create(node, ALICE, **owned_by("bob"))
        assert (int(allowed.error_code), allowed.principal_name) == (0, "bob")
        assert allowed.token_requester_principal_name == "alice"
        assert int((await create(node, ALICE, **owned_by("eve"))).error_code) == 65
        assert int((await create(node, ALICE, **owned_by("alice"))).error_code) == 0

    tell_guarded(story, **KEY)


def test_a_client_sees_its_tokens_and_those_that_an_acl_shows() -> None:
    async def story(node: ToyNode) -> None:
        own = (await create(node, ALICE)).token_id
        renewable = (await create(node, BOB, renewers=renewed_by("alice"))).token_id
        shown = (await create(node, BOB)).token_id
        hidden = (await create(node, BOB)).token_id
        assert await described(node, ALICE) == {own, renewable}
        assert await described(node, EVE) == set()
        await grant(node, (AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, shown))
        assert await described(node, ALICE) == {own, renewable, shown}
        await grant(node, (AclOperation.DESCRIBE_TOKENS, ResourceType.USER, "User:bob"))
        everything = {own, renewable, shown, hidden}
        assert await described(node, ALICE) == everything
        assert await described(node, ROOT) == everything

    tell_guarded(story, **KEY)


def test_owner_and_renewers_change_a_token_and_others_do_not() -> None:
    async def story(node: ToyNode) -> None:
        answer = await create(node, ALICE, renewers=renewed_by("bob"))
        secret, token_id = answer.hmac, answer.token_id
        assert await renew(node, ROOT, secret, SECOND) == 63  # no right of a super user
        for context in (ALICE, BOB):
            assert await renew(node, context, secret, SECOND) == 0
        token = node.metadata.image.tokens[token_id]
        assert token.expiry_ms - token.issue_ms < 2000
        assert await expire(node, EVE, secret, AT_ONCE) == 63
        assert await expire(node, BOB, secret, AT_ONCE) == 0
        assert await expire(node, BOB, secret, AT_ONCE) == 62
        assert not node.metadata.image.tokens

    tell_guarded(story, **KEY)


def test_a_token_of_another_broker_is_found() -> None:
    async def story(node: ToyNode) -> None:
        other = ToyNode(node.environment, {"delegation.token.secret.key": KEY_TEXT})
        await other.metadata.open()
        secret = (await create(other, ALICE)).hmac
        assert not node.metadata.image.tokens
        assert await renew(node, ALICE, secret, SECOND) == 0

    tell(story, **KEY)
