"""The authorizer of a broker's settings and ACLs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sparklog.broker.node.authorization import Authorization
from sparklog.cluster.metadata.image import MetadataImage
from sparklog.core.config.broker import STANDARD_AUTHORIZER, parse_broker_configs
from sparklog.core.errors import InvalidConfig
from sparklog.security.acls import AclOperation, ResourceType, checked_binding
from sparklog.security.principal import Principal

ON = {"authorizer.class.name": STANDARD_AUTHORIZER}
READ = checked_binding(2, "t", 3, "User:a", "*", 3, 3)


def test_without_an_authorizer_there_is_no_decision() -> None:
    assert Authorization(parse_broker_configs({})).current(MetadataImage()) is None


def test_authorizer_changes_with_the_acls_only() -> None:
    authorization = Authorization(parse_broker_configs({**ON, "super.users": "User:b; User:c"}))
    image = MetadataImage()
    before = authorization.current(image)
    assert before is not None
    assert authorization.current(replace(image, end_offset=1)) is before
    after = authorization.current(replace(image, acls={"1": READ}))
    assert after is not None
    for authorizer, name, allowed in (
        (before, "a", False),
        (after, "a", True),
        (before, "c", True),
        (after, "d", False),
    ):
        asked = Principal("User", name), "::1", AclOperation.READ, ResourceType.TOPIC, "t"
        assert authorizer.authorize(*asked).allowed is allowed


@pytest.mark.parametrize(
    ("name", "value"),
    [("authorizer.class.name", "com.example.Mine"), ("super.users", "alice")],
)
def test_settings_that_name_no_authorizer_or_principal_are_rejected(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=name):
        Authorization(parse_broker_configs({**ON, name: value}))
