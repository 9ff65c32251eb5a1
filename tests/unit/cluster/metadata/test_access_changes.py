"""ACLs and users as records of the metadata log."""

from __future__ import annotations

import json

import pytest

from sparklog.cluster.metadata import access_changes
from sparklog.cluster.metadata.access_changes import AclDeletion, NewAcls, UserChanges
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.cluster.metadata.records import (
    AccessControlEntryRecord,
    Record,
    TopicRecord,
    encode,
    without_secrets,
)
from sparklog.core.entropy import SYSTEM_ENTROPY
from sparklog.core.errors import InvalidRequest, ResourceNotFound, UnacceptableCredential
from sparklog.security.acls import AclFilter, ResourceType, checked_binding
from sparklog.security.sasl.credentials import ScramMechanism, new_credential

READ = checked_binding(2, "orders", 3, "User:a", "*", 3, 3)
WRITE = checked_binding(2, "or", 4, "User:b", "10.0.0.0/8", 4, 2)
SHA_256, SHA_512 = ScramMechanism


def applied(image: MetadataImage, records: list[Record]) -> MetadataImage:
    return image.applied(records, image.end_offset + len(records))


def test_acls_are_created_once_and_deleted_by_a_filter() -> None:
    image = MetadataImage()
    for acl, acl_id in ((READ, "1"), (WRITE, "2"), (READ, "3")):
        image = applied(image, NewAcls(image).create(acl, acl_id))
    assert dict(image.acls) == {"1": READ, "2": WRITE}
    deletion = AclDeletion(image)
    records, found = deletion.delete(AclFilter(ResourceType.TOPIC, "orders"))
    assert found == [READ]
    assert deletion.delete(AclFilter(principal="User:a")) == ([], [READ])
    image = applied(image, records)
    assert dict(image.acls) == {"2": WRITE}


def test_acls_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_changes, "ACLS_MAX", 1)
    image = applied(MetadataImage(), NewAcls(MetadataImage()).create(READ, "1"))
    assert NewAcls(image).create(READ, "2") == []
    with pytest.raises(InvalidRequest, match="too many ACLs"):
        NewAcls(image).create(WRITE, "2")


def test_acl_of_a_newer_version_is_skipped_and_marks_the_image() -> None:
    newer = AccessControlEntryRecord("1", 2, "t", 3, "User:a", "*", 99, 3)
    image = applied(MetadataImage(), [newer])
    assert not image.acls
    assert image.strange


def test_credentials_are_set_replaced_and_deleted() -> None:
    image = MetadataImage()
    first = new_credential(SHA_256, "one", SYSTEM_ENTROPY)
    second = new_credential(SHA_256, "two", SYSTEM_ENTROPY)
    other = new_credential(SHA_512, "two", SYSTEM_ENTROPY)
    for mechanism, credential in ((SHA_256, first), (SHA_256, second), (SHA_512, other)):
        image = applied(image, UserChanges(image).set("a", mechanism, credential))
    assert image.scram_credentials == {"a": {SHA_256: second, SHA_512: other}}
    for mechanism in ScramMechanism:
        image = applied(image, UserChanges(image).delete("a", mechanism))
    assert image.scram_credentials == {}
    with pytest.raises(ResourceNotFound, match="SCRAM-SHA-256"):
        UserChanges(image).delete("a", SHA_256)


@pytest.mark.parametrize("name", ["", "x" * 256, "a\nb", "\x1b[31m"])
def test_user_names_without_a_printable_form_are_rejected(name: str) -> None:
    credential = new_credential(SHA_256, "one", SYSTEM_ENTROPY)
    with pytest.raises(UnacceptableCredential, match="printable"):
        UserChanges(MetadataImage()).set(name, SHA_256, credential)


def test_users_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_changes, "USERS_MAX", 1)
    credential = new_credential(SHA_256, "one", SYSTEM_ENTROPY)
    first = UserChanges(MetadataImage()).set("a", SHA_256, credential)
    image = applied(MetadataImage(), first)
    assert UserChanges(image).set("a", SHA_512, credential)
    with pytest.raises(UnacceptableCredential, match="too many users"):
        UserChanges(image).set("b", SHA_256, credential)


def test_stored_records_are_shown_without_secrets() -> None:
    credential = new_credential(SHA_256, "one", SYSTEM_ENTROPY)
    records = [
        *UserChanges(MetadataImage()).set("salt", SHA_256, credential),
        TopicRecord("secret", "A" * 22),
    ]
    user, topic = encode(records).column("value").to_pylist()
    assert json.loads(without_secrets(user)) == {
        "type": "UserScramCredentialRecord",
        "name": "salt",
        "mechanism": 1,
        "iterations": 4096,
        **dict.fromkeys(("salt", "storedKey", "serverKey"), "[hidden]"),
    }
    assert without_secrets(topic) == topic
    assert without_secrets(user[:-1]) == b"[hidden]"
    assert without_secrets(b'["secret"]') == b"[hidden]"
