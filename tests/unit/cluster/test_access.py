"""Users and ACLs of a `Log`, which come back from the bucket alone."""

from __future__ import annotations

from dataclasses import replace
from uuid import uuid4

import pytest

from sparklog.cluster.log import Log, open_log
from sparklog.cluster.metadata import access_changes, snapshot
from sparklog.core.errors import InvalidRequest, ResourceNotFound, UnacceptableCredential
from sparklog.security.acls import AclFilter, PatternType, checked_binding
from sparklog.security.sasl.credentials import ScramMechanism

READ = checked_binding(2, "orders", 3, "User:alice", "*", 3, 3)
WRITE = checked_binding(2, "or", 4, "User:bob", "10.0.0.0/8", 4, 2)
SHA_256, SHA_512 = ScramMechanism


@pytest.fixture
def root() -> str:
    return f"memory://{uuid4().hex}"


def test_users_and_acls_are_read_back_from_the_log_and_a_snapshot(
    root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_log(root) as log:
        log.set_password("alice", "secret")
        log.set_password("alice", "other", [SHA_512], 8192)
        log.create_acls([READ, WRITE])
    monkeypatch.setattr(snapshot, "is_due", lambda image, end: True)
    for is_last in (False, True):
        with open_log(root) as log:
            assert log.acls() == [READ, WRITE]
            assert log.users() == {"alice": {SHA_256: 4096, SHA_512: 8192}}
            credentials = log.refresh().scram_credentials["alice"]
            assert credentials[SHA_256].proves(SHA_256, "secret")
            assert credentials[SHA_512].proves(SHA_512, "other")
            if not is_last:
                log.create_topic("t")  # which writes a snapshot


def test_acls_are_created_all_or_none(root: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_changes, "ACLS_MAX", 1)
    with open_log(root) as log:
        log.create_acls([READ, READ])
        end = log.refresh().end_offset
        with pytest.raises(InvalidRequest, match="too many ACLs"):
            log.create_acls([WRITE])
        with pytest.raises(InvalidRequest, match="of filters only"):
            log.create_acls([replace(READ, pattern_type=PatternType.MATCH)])
        log.create_acls([READ])
        assert log.acls() == [READ]
        assert log.refresh().end_offset == end


def test_deleted_acls_are_those_of_the_filters(root: str) -> None:
    with open_log(root) as log:
        log.create_acls([READ, WRITE])
        deleting = [AclFilter(resource_name="orders"), AclFilter(principal="User:alice")]
        assert log.delete_acls(deleting) == [READ]
        assert log.acls(AclFilter(principal="User:bob")) == [WRITE]
        assert log.delete_acls(deleting) == []
        assert log.delete_acls([AclFilter()]) == [WRITE]
        assert log.acls() == []


def test_removing_a_password_needs_one(root: str) -> None:
    with open_log(root) as log:
        log.set_password("alice", "secret", [SHA_256])
        with pytest.raises(ResourceNotFound, match="SCRAM-SHA-512"):
            log.remove_password("alice", list(ScramMechanism))
        assert log.users() == {"alice": {SHA_256: 4096}}
        log.remove_password("alice")
        assert log.users() == {}
        with pytest.raises(ResourceNotFound, match="alice"):
            log.remove_password("alice")


def test_text_that_is_not_utf8_is_no_password_and_not_shown(root: str) -> None:
    with open_log(root) as log, pytest.raises(UnacceptableCredential) as error:
        log.set_password("alice", "hidden\udcff")
    assert "hidden" not in repr(error.value)
    assert error.value.__cause__ is None


def test_two_logs_that_change_access_at_once_lose_nothing(root: str) -> None:
    with open_log(root) as one, open_log(root) as two:
        for log in (one, two):
            log.acls()
        one.create_acls([READ])
        two.create_acls([READ, WRITE])
        assert Log(one.store).acls() == [READ, WRITE]
        one.set_password("alice", "secret")
        two.set_password("bob", "secret")
        assert sorted(one.users()) == ["alice", "bob"]
