"""DescribeUserScramCredentials and AlterUserScramCredentials over the wire codec."""

from __future__ import annotations

import base64
import logging
from typing import Any

import pyarrow as pa
import pytest
from kio.schema.errors import ErrorCode

from sparklog.broker.handlers import scram_credentials
from sparklog.cluster.metadata import access_changes
from sparklog.protocol.api_keys import Api
from sparklog.protocol.messages.builder import build_request, build_request_part
from sparklog.security.sasl.credentials import ScramMechanism
from tests.harness.handler_node import ToyNode, tell

SHA_256, SHA_512 = ScramMechanism
SALT = b"0123456789"
PASSWORD = "correct-horse"
OK, UNACCEPTABLE = ErrorCode.none, ErrorCode.unacceptable_credential
NOT_FOUND, DUPLICATE = ErrorCode.resource_not_found, ErrorCode.duplicate_resource
UNSUPPORTED = ErrorCode.unsupported_sasl_mechanism
Results = list[tuple[str, ErrorCode]]


def upsertion(name: str, mechanism: int = SHA_256, iterations: int = 4096, **more: Any) -> Any:
    salted = SHA_256.salted_password(PASSWORD, SALT, 4096)
    if mechanism in ScramMechanism.__members__.values() and iterations > 0:
        salted = ScramMechanism(mechanism).salted_password(PASSWORD, SALT, iterations)
    return build_request_part(
        Api.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        "ScramCredentialUpsertion",
        **{
            "name": name,
            "mechanism": mechanism,
            "iterations": iterations,
            "salt": SALT,
            "salted_password": salted,
            **more,
        },
    )


def deletion(name: str, mechanism: int = SHA_256) -> Any:
    return build_request_part(
        Api.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        "ScramCredentialDeletion",
        name=name,
        mechanism=mechanism,
    )


async def alter(node: ToyNode, *upsertions: Any, deleted: tuple[Any, ...] = ()) -> Results:
    request = build_request(
        Api.ALTER_USER_SCRAM_CREDENTIALS, 0, deletions=deleted, upsertions=upsertions
    )
    answer = await node.ask(request)
    assert all(bool(r.error_message) != (r.error_code is OK) for r in answer.results)
    assert not any(PASSWORD in (r.error_message or "") for r in answer.results)
    return [(result.user, result.error_code) for result in answer.results]


async def described(node: ToyNode, *names: str) -> dict[str, Any]:
    """Return an error, or mechanisms with iterations, by name; no names ask for all."""
    users = tuple(
        build_request_part(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, "UserName", name=name)
        for name in names
    )
    answer = await node.ask(
        build_request(Api.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=users or None)
    )
    assert answer.error_code is OK
    return {
        result.user: [(one.mechanism, one.iterations) for one in result.credential_infos]
        if result.error_code is OK
        else result.error_code
        for result in answer.results
    }


def test_credentials_are_set_described_and_deleted() -> None:
    async def story(node: ToyNode) -> None:
        assert await described(node) == {}
        assert await alter(node, upsertion("a"), upsertion("b", SHA_512, 8192)) == [
            ("a", OK),
            ("b", OK),
        ]
        assert await alter(node, upsertion("a", SHA_512)) == [("a", OK)]
        assert await described(node) == {"a": [(1, 4096), (2, 4096)], "b": [(2, 8192)]}
        assert await described(node, "b", "c", "a", "a") == {
            "b": [(2, 8192)],
            "c": NOT_FOUND,
            "a": DUPLICATE,
        }
        deleted = (deletion("b", SHA_512), deletion("c"))
        assert await alter(node, deleted=deleted) == [("b", OK), ("c", NOT_FOUND)]
        assert list(await described(node)) == ["a"]
        credentials = node.metadata.image.scram_credentials["a"]
        assert all(one.proves(mechanism, PASSWORD) for mechanism, one in credentials.items())

    tell(story)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsertion("b", iterations=4095), UNACCEPTABLE),
        (upsertion("b", iterations=16_385), UNACCEPTABLE),
        (upsertion("b", iterations=-1), UNACCEPTABLE),
        (upsertion("b", 0), UNSUPPORTED),
        (upsertion("b", 3), UNSUPPORTED),
        (upsertion(""), UNACCEPTABLE),
        (upsertion("b" * 256), UNACCEPTABLE),
        (upsertion("b", salt=b""), UNACCEPTABLE),
        (upsertion("b", salt=b"s" * 1025), UNACCEPTABLE),
        (upsertion("b", salted_password=b""), UNACCEPTABLE),
    ],
)
def test_one_wrong_credential_is_refused_alone(change: Any, code: ErrorCode) -> None:
    async def story(node: ToyNode) -> None:
        changed = await alter(node, upsertion("a"), change, upsertion("c"))
        assert changed == [("a", OK), (change.name, code), ("c", OK)]
        assert sorted(await described(node)) == ["a", "c"]

    tell(story)


def test_deletion_of_an_unknown_mechanism_is_refused() -> None:
    async def story(node: ToyNode) -> None:
        await alter(node, upsertion("a"))
        assert await alter(node, deleted=(deletion("a", 9),)) == [("a", UNSUPPORTED)]
        assert await alter(node, deleted=(deletion("a", SHA_512),)) == [("a", NOT_FOUND)]

    tell(story)


def test_a_user_that_a_request_alters_twice_stays_as_it_was() -> None:
    async def story(node: ToyNode) -> None:
        await alter(node, upsertion("a"))
        twice = (upsertion("a", SHA_512), upsertion("b"), upsertion("b", SHA_512))
        changed = await alter(node, *twice, upsertion("c"), deleted=(deletion("a"),))
        assert changed == [("a", DUPLICATE), ("b", DUPLICATE), ("c", OK)]
        assert await described(node) == {"a": [(1, 4096)], "c": [(1, 4096)]}

    tell(story)


def test_users_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_changes, "USERS_MAX", 1)
    monkeypatch.setattr(scram_credentials, "USERS_MAX", 2)

    async def story(node: ToyNode) -> None:
        changed = await alter(node, upsertion("a"), upsertion("b"))
        assert changed == [("a", OK), ("b", UNACCEPTABLE)]
        three = [upsertion(name) for name in "abc"]
        assert [code for _, code in await alter(node, *three)] == [ErrorCode.invalid_request] * 3

    tell(story)


def test_neither_salted_password_nor_keys_are_kept_or_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    salted = SHA_256.salted_password(PASSWORD, SALT, 4096)

    async def story(node: ToyNode) -> None:
        with caplog.at_level(logging.DEBUG):
            await alter(node, upsertion("a"), upsertion("b", 9))
        image = node.metadata.image
        credential = image.scram_credentials["a"][SHA_256]
        for secret in (salted, credential.stored_key, credential.server_key):
            shown = repr(secret)[2:-1]
            assert shown not in caplog.text + repr(image) + repr(credential)
        values = await metadata_values(node)
        assert base64.b64encode(credential.stored_key) in values
        assert base64.b64encode(salted) not in values

    tell(story)


async def metadata_values(node: ToyNode) -> bytes:
    """Return the records of the metadata log as they are stored, one after the other."""
    store = node.environment.store
    keys = [info.key for info in await store.list("") if info.key.endswith(".arrow")]
    files = [pa.ipc.open_file(await store.get(key)).read_all() for key in keys]
    return b"\n".join(value for file in files for value in file["value"].to_pylist())
