"""Principals and their text."""

from __future__ import annotations

import pytest

from sparklog.core.errors import InvalidRequest
from sparklog.security.principal import ANONYMOUS, Principal, parse_principal


def test_principal_comes_back_from_its_text() -> None:
    for principal in (ANONYMOUS, Principal("User", "CN=a,OU=b:c"), Principal("Group", "x y")):
        assert parse_principal(str(principal)) == principal


@pytest.mark.parametrize("text", ["", "alice", ":alice", "User:", "User:" + "a" * 5000])
def test_principal_rejects_other_text(text: str) -> None:
    with pytest.raises(InvalidRequest, match="kind:name"):
        parse_principal(text)
