"""`auth`, `roles` and `trusted_proxies` in gateway.yaml: valid values, and the problems of invalid ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.callers.methods import ClientHeader, NoAuth, OAuthIssuer, ProxyAuth, Roles, TokenAuth
from gateway.config import Config, load_config
from gateway.credentials import ALGORITHMS
from gateway.errors import DocumentError
from tests.leaks.marks import MARK

APPS = "apps: {page: {source: index.html, policy: policy.yaml}}\n"
POLICY = "version: 1\nbackends: {api: {url: 'https://api.example.com'}}\nroutes: [{path: /api, methods: [GET]}]\n"
PUBLIC = """
server:
  listen: 0.0.0.0:8080
  public_url: https://gateway.example.com
  origins: {console: https://gateway.example.com, apps: "https://{app}.apps.example.net", sandbox: https://s.example.org}
"""


def load(folder: Path, text: str) -> Config:
    """Load `text` as the configuration, beside an app."""
    (folder / "index.html").write_text("<!doctype html>")
    (folder / "policy.yaml").write_text(POLICY)
    (folder / "gateway.yaml").write_text(APPS + text)
    return load_config(folder / "gateway.yaml", {"S": f"s3cret-{MARK}"})


def problems(folder: Path, text: str) -> str:
    """The problems of an invalid configuration."""
    with pytest.raises(DocumentError) as raised:
        load(folder, text)
    return str(raised.value)


def test_an_issuer_needs_its_name_alone(tmp_path: Path) -> None:
    """The rest has defaults; the audience is the public URL."""
    (method,) = load(tmp_path, "auth: [{type: oauth, issuer: https://login.example.com}]\n").auth
    assert isinstance(method, OAuthIssuer)
    assert (method.issuer, method.audience) == ("https://login.example.com", ("http://localhost:8080",))
    assert (method.algorithms, method.scope, method.roles_claim) == (ALGORITHMS, (), "roles")
    assert (method.client_id, method.client_secret, method.introspection) == (None, None, False)
    assert (method.skew, method.session) == (30.0, 43200.0)
    assert not method.network.allows("10.0.0.1")


def test_everything_can_be_said(tmp_path: Path) -> None:
    """Each method is read, in the order of the file, and so are roles."""
    config = load(
        tmp_path,
        f"""{PUBLIC}  trusted_proxies: [10.0.0.7, 10.1.0.0/16]
  client_header: x-forwarded-for
auth:
  - type: oauth
    issuer: https://login.example.com/realms/a
    audience: [https://gateway.example.com, gateway]
    algorithms: [ES256]
    scope: [mcp]
    roles_claim: realm_access.roles
    client_id: console
    client_secret: "${{env:S}}"
    login_scope: [openid, profile]
    introspection: true
    skew: 1m
    session: 8h
    network: [10.0.0.0/8]
  - {{type: proxy, name: front, header: X-Auth-Request-User, roles_header: X-Auth-Request-Groups, proxies: [10.0.0.7]}}
  - token
roles: {{user: [staff], approver: [ops], auditor: [audit], admin: [root]}}
""",
    )
    oauth, proxy, token = config.auth
    assert isinstance(oauth, OAuthIssuer)
    assert oauth.client_secret is not None
    assert (oauth.client_secret.reveal(), oauth.skew, oauth.session) == (f"s3cret-{MARK}", 60.0, 28800.0)
    assert oauth.network.allows("10.0.0.1")
    assert isinstance(proxy, ProxyAuth)
    assert (proxy.header, proxy.roles_header) == ("x-auth-request-user", "x-auth-request-groups")
    assert token == TokenAuth()
    groups = [frozenset({name}) for name in ("staff", "ops", "audit", "root")]
    assert config.roles == Roles(*groups)
    assert [str(block) for block in config.server.trusted_proxies] == ["10.0.0.7/32", "10.1.0.0/16"]
    assert config.server.client_header is ClientHeader.X_FORWARDED_FOR
    assert "s3cret" not in repr(config)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("auth: []\n", "name at least one of"),
        ("auth: [oauth]\n", "write it as a mapping with `type: oauth`"),
        ("auth: [{type: oauth}]\n", '"issuer" is missing'),
        ("auth: [{type: oauth, issuer: http://login.example.com}]\n", "write https"),
        ("auth: [{type: oauth, issuer: https://i.test, algorithms: [HS256]}]\n", 'ES512, EdDSA, not "HS256"'),
        ("auth: [{type: oauth, issuer: https://i.test, algorithms: [none]}]\n", "must be one of RS256, "),
        ("auth: [{type: oauth, issuer: https://i.test, introspection: true}]\n", "introspection takes client_id"),
        ("auth: [{type: oauth, issuer: https://i.test, client_secret: x}]\n", "client_secret takes a client_id"),
        ("auth: [{type: oauth, issuer: https://i.test, skew: 1h}]\n", "at most 5m"),
        ("auth: [{type: oauth, issuer: https://i.test, session: 1s}]\n", "from 1m to 30d"),
        ("auth: [{type: oauth, issuer: https://i.test, audiance: x}]\n", 'did you mean "audience"'),
        ("auth: [{type: oauth, issuer: https://i.test}, {type: oauth, issuer: https://i.test}]\n", "occurs here twice"),
        ("auth: [{type: proxy, name: p, header: x-user, proxies: []}]\n", "list the addresses of the proxy"),
        (
            "auth: [{type: proxy, name: p, header: cookie, proxies: [10.0.0.1]}]\n",
            "not a header that identifies the caller",
        ),
        (
            "auth: [{type: proxy, name: p, header: 'x y', proxies: [10.0.0.1]}]\n",
            "not a header that identifies the caller",
        ),
        ("auth: [{type: proxy, name: p, header: x-user, proxies: [proxy.local]}]\n", "not an address or CIDR block"),
        ("server: {trusted_proxies: [10.0.0.1/8]}\n", "not an address or CIDR block"),
        ("server: {client_header: forwarded}\n", "client_header: no proxy is trusted"),
        ("server: {trusted_proxies: [10.0.0.1], client_header: x-real-ip}\n", "one of forwarded, x-forwarded-for"),
        ("roles: {approvers: [ops]}\n", 'did you mean "approver"'),
        (f"{PUBLIC}auth: [none]\n", "`auth` lets everybody in"),
        (f"{PUBLIC}auth: [token, none]\n", "`auth` lets everybody in"),
        (f"{PUBLIC.replace('https://gateway', 'http://gateway')}auth: [token]\n", "write https: logins go over"),
        ("auth: [token]\nserver: {origins: {console: 'http://localhost:8080'}}\n", "bare localhost shares its cookies"),
    ],
)
def test_what_is_wrong_is_named_with_its_remedy(tmp_path: Path, text: str, said: str) -> None:
    """Each problem has its place in the file."""
    found = problems(tmp_path, text)
    assert said in found
    assert found.startswith(f"{tmp_path}/gateway.yaml:")


def test_the_default_is_this_machine_alone(tmp_path: Path) -> None:
    """Everybody may use apps there."""
    config = load(tmp_path, "")
    assert (config.auth, config.roles, config.server.trusted_proxies) == ((NoAuth(),), Roles(), ())
