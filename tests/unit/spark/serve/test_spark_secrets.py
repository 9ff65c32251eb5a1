"""Secrets of Spark's own ports, and the address of Spark Connect."""

from __future__ import annotations

import pytest

from sparklog.core.entropy import SeededEntropy
from sparklog.spark.serve.spark_secrets import (
    CONNECT_VARIABLE,
    authenticated_conf,
    connect_address,
    connect_token,
)


def test_each_application_has_a_secret_of_its_own() -> None:
    entropy = SeededEntropy(1)
    first, second = authenticated_conf(entropy), authenticated_conf(entropy)
    assert first["spark.authenticate"] == "true"
    assert len(first["spark.authenticate.secret"]) == 32
    assert first["spark.authenticate.secret"] != second["spark.authenticate.secret"]


def test_connect_token_is_new_unless_the_user_set_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CONNECT_VARIABLE, raising=False)
    assert len(connect_token(SeededEntropy(1))[CONNECT_VARIABLE]) == 32
    monkeypatch.setenv(CONNECT_VARIABLE, "chosen")
    assert connect_token(SeededEntropy(1)) == {}


def test_connect_address_shows_only_a_token_of_ours() -> None:
    assert connect_address(15002, "abc").document["address"] == "sc://localhost:15002/;token=abc"
    assert connect_address(15002, None).document["address"] == "sc://localhost:15002"
