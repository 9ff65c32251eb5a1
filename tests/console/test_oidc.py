"""Logins at an OpenID provider, over real HTTP: what is accepted, and each thing that is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2 as httpx
import pytest
from starlette.testclient import TestClient

from sparklog.cluster.log import open_log
from sparklog.console.oidc import OidcLogins, OidcSettings
from sparklog.console.resources import ConsoleRole
from sparklog.console.root_view import RootView
from sparklog.console.sessions import ConsoleUser, ProviderLogins, broker_user
from sparklog.core.config.broker import STANDARD_AUTHORIZER
from sparklog.core.errors import InvalidConfig
from sparklog.security.acls import (
    AclBinding,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from sparklog.security.principal import Principal
from sparklog.testing.cluster import SparklogCluster
from tests.harness.console_browser import Browser, browser_of
from tests.harness.oidc_provider import (
    BROKERS,
    CLIENT_ID,
    CLIENT_SECRET,
    OidcProvider,
    new_key,
    running_provider,
)

CALLBACK = "http://localhost:9099/login/callback"


@pytest.fixture
def provider() -> Iterator[OidcProvider]:
    with running_provider() as one:
        one.redirect_uri = CALLBACK
        yield one


def oidc_of(provider: OidcProvider, **changes: str) -> OidcLogins:
    given = {"issuer": provider.issuer, "client_id": CLIENT_ID, "redirect_uri": CALLBACK,
             "client_secret": CLIENT_SECRET, **changes}  # fmt: skip
    return OidcLogins(OidcSettings(**given))


@pytest.fixture
def client(provider: OidcProvider, tmp_path: Path) -> Iterator[TestClient]:
    """A console of a root, where ann is an admin."""
    view = RootView(str(tmp_path / "log"))
    roles = {"ann": ConsoleRole.ADMIN}

    def user_of(found: Any) -> ConsoleUser:
        return ConsoleUser(found.name, roles.get(found.name, ConsoleRole.VIEWER), view)

    logins = ProviderLogins(oidc_of(provider), user_of)
    with browser_of(view, logins=logins) as one:
        yield one
    view.close()


def asked(client: TestClient) -> str:
    """Go to the provider, and return the address to which it sends the browser back."""
    to_provider = client.get("/login/provider", follow_redirects=False)
    assert to_provider.status_code == 303
    cookie = to_provider.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    with httpx.Client() as browser:
        back = browser.get(to_provider.headers["location"])
    assert back.status_code == 302, back.text
    return str(back.headers["location"]).removeprefix("http://localhost:9099")


def log_in(client: TestClient, status: int = 303) -> Any:
    answer = client.get(asked(client), follow_redirects=False)
    assert answer.status_code == status, answer.text
    return answer


def test_login_gives_a_session_with_the_users_role(
    provider: OidcProvider, client: TestClient
) -> None:
    browser = Browser(client)
    first = client.get("/topics", follow_redirects=False)
    assert first.headers["location"] == "/login/provider"
    assert browser.get("/topics", 401)["error"] == "Log in first"
    assert "Log in at the provider" in client.get("/login").text
    assert client.post("/login", data={"user": "ann", "password": "x"}).status_code == 401
    assert log_in(client).headers["location"] == "/"
    assert (browser.get("/session")["user"], browser.get("/session")["role"]) == ("ann", "admin")
    browser.post("/topics", name="orders")
    client.post("/logout", data={"csrf": browser.token()}, follow_redirects=False)
    browser.get("/session", 401)
    provider.subject = "bob"
    log_in(client)
    assert browser.get("/session")["role"] == "viewer"
    browser.post("/topics", 403, name="other")
    assert provider.keys_read == 1


def test_state_belongs_to_one_browser_and_one_use(client: TestClient) -> None:
    address = asked(client)
    state = parse_qs(urlsplit(address).query)["state"][0]
    cookies = dict(client.cookies)
    client.cookies.clear()
    assert client.get(address).status_code == 401
    client.cookies.update(cookies)
    # The wrong browser has used the state up.
    assert client.get(address).status_code == 401
    address = asked(client)
    assert client.get(address.replace("state=", "state=x")).status_code == 401
    assert client.get(f"/login/callback?state={state}&code=code-0").status_code == 401
    assert client.get("/login/callback").status_code == 401
    address = asked(client)
    assert client.get(address, follow_redirects=False).status_code == 303
    client.cookies.delete("sparklog_console")
    assert client.get(address).status_code == 401


@pytest.mark.parametrize(
    "changes",
    [
        {"nonce": "other"},
        {"nonce": None},
        {"aud": "other"},
        {"aud": [CLIENT_ID, "other"]},
        {"azp": "other"},
        {"iss": "http://127.0.0.1:1"},
        {"exp": 1_000_000_000},
        {"sub": ""},
    ],
    ids="-".join,
)
def test_token_with_a_wrong_claim_gives_no_session(
    changes: dict[str, Any], provider: OidcProvider, client: TestClient
) -> None:
    provider.changes = changes
    answer = log_in(client, 401)
    assert "did not confirm the login" in answer.text
    Browser(client).get("/session", 401)


def test_keys_are_read_again_for_a_new_key_only(provider: OidcProvider, client: TestClient) -> None:
    log_in(client)
    provider.signing = new_key("forged")
    log_in(client, 401)
    provider.key = provider.signing = new_key("second")
    log_in(client, 401)
    assert provider.keys_read == 1, "not at once again"
    provider.changes = {"aud": [CLIENT_ID, "other"], "azp": CLIENT_ID}
    provider.key = provider.signing = new_key("first")
    log_in(client, 401)


def test_callback_of_a_refusal_or_another_issuer_is_rejected(client: TestClient) -> None:
    for change in ("&error=access_denied", "&iss=http://127.0.0.1:1"):
        address = asked(client).replace("&iss=", "&old=") + change
        assert client.get(address).status_code == 401


def test_provider_must_be_the_issuer_over_https(provider: OidcProvider) -> None:
    with pytest.raises(InvalidConfig, match="another issuer"):
        oidc_of(provider, issuer=provider.issuer.replace("127.0.0.1", "localhost")).begin()
    for wrong in ("http://provider.example", "https://user:secret@provider.example", "file:///x"):
        with pytest.raises(InvalidConfig, match="is https"):
            oidc_of(provider, issuer=wrong)


def test_console_acts_at_brokers_by_the_access_token(
    provider: OidcProvider, tmp_path: Path
) -> None:
    settings = {
        "listeners": "LOGIN://127.0.0.1:0",
        "listener.security.protocol.map": "LOGIN:SASL_PLAINTEXT",
        "inter.broker.listener.name": "LOGIN",
        "sasl.enabled.mechanisms": "OAUTHBEARER,SCRAM-SHA-512",
        "sasl.oauthbearer.jwks.endpoint.url": f"{provider.issuer}/keys",
        "sasl.oauthbearer.expected.audience": BROKERS,
        "sasl.oauthbearer.expected.issuer": provider.issuer,
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:root",
        "connection.failed.authentication.delay.ms": "0",
    }
    root = str(tmp_path / "log")
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512",
             "sasl.username": "root", "sasl.password": "root-secret"}  # fmt: skip
    with open_log(root) as log:
        log.set_password("root", "root-secret")
        log.create_acls(
            [
                AclBinding(
                    ResourceType.TOPIC, "flights", PatternType.LITERAL,
                    Principal("User", "ann"), "*", AclOperation.READ, AclPermission.ALLOW,
                )
            ]
        )  # fmt: skip
    with SparklogCluster(config=settings, root=root, security=login) as cluster:
        cluster.topic("flights")
        cluster.topic("orders")
        cluster.produce("flights", [b"hello"])

        def user_of(found: Any) -> ConsoleUser:
            return broker_user(cluster.bootstrap_servers, {}, ConsoleRole.ADMIN, None, found)

        view = RootView(root)
        with browser_of(view, logins=ProviderLogins(oidc_of(provider), user_of)) as client:
            browser = Browser(client)
            log_in(client)
            assert [one["name"] for one in browser.get("/topics")["topics"]] == ["flights"]
            (row,) = browser.get("/topics/flights/records")["records"]
            assert row["value"]["text"] == "hello"
            browser.get("/topics/orders", 403)
            browser.post("/topics", 403, name="new")
        view.close()
