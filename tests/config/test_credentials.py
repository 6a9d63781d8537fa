"""Credentials in gateway.yaml: each kind, and every mistake with its place and remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config import Config, load_config
from gateway.config.secrets import PendingSecret
from gateway.credentials import Basic, ClientAuthentication, FixedHeader, JwtBearer, OAuth, PluginSpec, TokenExchange
from gateway.errors import DocumentError
from tests.credentials.house import KEY
from tests.leaks.marks import MARK

OAUTH = "issuer: https://login.example, client_id: gateway"


def load(folder: Path, credentials: str, extra: str = "") -> Config:
    (folder / "web").mkdir(exist_ok=True)
    (folder / "policy.yaml").write_text("version: 1\n")
    listed = "".join(f"  {line}\n" for line in credentials.strip().splitlines())
    file = folder / "gateway.yaml"
    file.write_text(f"apps: {{cart: {{source: web, policy: policy.yaml}}}}\ncredentials:\n{listed}{extra}")
    return load_config(file, {"S": f"s3cret-of-the-environment-{MARK}", "KEY": KEY})


def test_every_kind(tmp_path: Path) -> None:
    """The client authentication follows from the given keys."""
    (tmp_path / "client.pem").write_text("a certificate")
    config = load(
        tmp_path,
        f"""
header: {{type: header, header: X-Api-Key, value: "${{env:S}}"}}
basic: {{type: basic, username: gate, password: "${{env:S}}"}}
secret: {{type: client_credentials, {OAUTH}, client_secret: "${{env:S}}"}}
key: {{type: client_credentials, {OAUTH}, private_key: "${{env:KEY}}", key_id: k1, dpop: true}}
tls: {{type: client_credentials, {OAUTH}, certificate: client.pem}}
person: {{type: authorization_code, {OAUTH}, scope: [openid]}}
exchanged: {{type: token_exchange, {OAUTH}, client_secret: "${{env:S}}", subject: person, requested_token_type: jwt}}
signed: {{type: jwt_bearer, {OAUTH}, private_key: "${{env:KEY}}", subject_claim: email}}
chained: {{type: jwt_bearer, {OAUTH}, client_secret: "${{env:S}}", assertion: exchanged}}
""",
    )
    found = config.credentials
    assert isinstance(found["header"], FixedHeader)
    assert found["header"].field == "x-api-key"
    assert isinstance(found["basic"], Basic)
    oauth = {name: spec for name, spec in found.items() if isinstance(spec, OAuth)}
    assert {name: spec.client.authentication for name, spec in oauth.items()} == {
        "secret": None,
        "key": ClientAuthentication.PRIVATE_KEY_JWT,
        "tls": ClientAuthentication.TLS,
        "person": ClientAuthentication.NONE,
        "exchanged": None,
        "signed": ClientAuthentication.NONE,
        "chained": None,
    }
    assert [name for name, spec in oauth.items() if spec.per_person] == ["person", "exchanged", "signed", "chained"]
    assert isinstance(oauth["exchanged"].grant, TokenExchange)
    assert isinstance(oauth["signed"].grant, JwtBearer)
    assert "s3cret" not in repr(config)
    assert "PRIVATE KEY" not in repr(config)


def test_plugins_bring_kinds_and_secrets(tmp_path: Path) -> None:
    """Their options, including secrets, are passed on; without plugins the kind is a mistake."""
    text = """
own: {type: vault, path: a/b, token: "${env:S}"}
other: {type: header, value: "${plugin:vault:x}"}
"""
    config = load(tmp_path, text, "plugins: [my.plugin]\n")
    own, other = config.credentials["own"], config.credentials["other"]
    assert isinstance(own, PluginSpec)
    assert (own.type, own.options["path"]) == ("vault", "a/b")
    assert isinstance(other, FixedHeader)
    assert isinstance(other.value, PendingSecret)
    with pytest.raises(DocumentError, match="must be one of header, basic"):
        load(tmp_path, text)


def test_of_an_unknown_type_nothing_else_is_said(tmp_path: Path) -> None:
    """Its required and allowed keys are unknown."""
    with pytest.raises(DocumentError) as caught:
        load(tmp_path, "a: {type: password, value: x}\n")
    (problem,) = caught.value.problems
    assert "type: must be one of header, basic" in problem.message


@pytest.mark.parametrize("kind", ["bearer", "token"])
def test_what_others_call_a_fixed_token_is_a_header(tmp_path: Path, kind: str) -> None:
    """No type of OAuth is suggested for a similar name."""
    with pytest.raises(DocumentError) as caught:
        load(tmp_path, f"a: {{type: {kind}, token: x}}\n")
    (problem,) = caught.value.problems
    assert "write {type: header, prefix: Bearer" in problem.message
    assert "jwt_bearer" not in problem.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: {type: header}", '"value" is missing'),
        ("a: {type: header, header: Cookie, value: x}", "not a header that a credential can set"),
        ("a: {type: header, header: 'x y', value: x}", "not a header that a credential can set"),
        ("a: {type: header, value: 'é'}", "visible ASCII"),
        ("a: {type: basic, username: 'a:b', password: x}", "no colon"),
        (f"a: {{type: client_credentials, {OAUTH}}}", "the client authentication is missing"),
        (f"a: {{type: client_credentials, {OAUTH}, client_auth: private_key_jwt}}", "needs private_key"),
        (f"a: {{type: client_credentials, {OAUTH}, client_auth: tls_client_auth}}", "needs certificate"),
        (f"a: {{type: client_credentials, {OAUTH}, client_auth: client_secret_post}}", "needs client_secret"),
        (f"a: {{type: client_credentials, {OAUTH}, private_key: '${{env:S}}'}}", "not a private key in PEM"),
        (f"a: {{type: client_credentials, {OAUTH}, private_key: '${{env:KEY}}', algorithm: RS256}}", "take ES256"),
        (f"a: {{type: client_credentials, {OAUTH}, certificate: gone.pem}}", "there is no file"),
        (f"a: {{type: client_credentials, {OAUTH}, certificate_key: gone.pem}}", "needs certificate beside it"),
        (f"a: {{type: authorization_code, {OAUTH}, resource: '/x'}}", "absolute URI"),
        (f"a: {{type: authorization_code, {OAUTH}, resource: 'https://a/#b'}}", "without a fragment"),
        ("a: {type: authorization_code, issuer: 'http://login.example', client_id: x}", "write https"),
        ("a: {type: authorization_code, client_id: x}", '"issuer" is missing'),
        (f"a: {{type: token_exchange, {OAUTH}, client_secret: x}}", '"subject" is missing'),
        (f"a: {{type: token_exchange, {OAUTH}, client_secret: x, subject: b}}", "there is no credential 'b'"),
        (f"a: {{type: token_exchange, {OAUTH}, client_secret: x, subject: a}}", "would be made of itself"),
        (f"a: {{type: jwt_bearer, {OAUTH}}}", "either private_key, or assertion"),
        (f"a: {{type: jwt_bearer, {OAUTH}, assertion: b, subject: x, subject_claim: y}}", "take subject"),
        (f"a: {{type: client_credentials, {OAUTH}, client_secret: 'x ${{env:S}}'}}", "as the whole value"),
        (f"a: {{type: client_credentials, {OAUTH}, client_secret: x, header: y}}", 'unknown key "header"'),
        ("'a b': {type: basic, username: a, password: b}", "must be of letters"),
    ],
)
def test_every_mistake_is_named_with_its_place(tmp_path: Path, text: str, words: str) -> None:
    """No problem contains a secret."""
    with pytest.raises(DocumentError) as refused:
        load(tmp_path, text)
    assert words in str(refused.value)
    assert "gateway.yaml:3:" in str(refused.value)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("other", ["basic", "header"])
def test_only_tokens_can_be_exchanged(tmp_path: Path, other: str) -> None:
    """A password is not a token."""
    text = f"""
b: {{type: {other}, {"username: x, password: y" if other == "basic" else "value: y"}}}
a: {{type: token_exchange, {OAUTH}, client_secret: x, subject: b}}
"""
    with pytest.raises(DocumentError, match="has no token"):
        load(tmp_path, text)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("AAAA", "the key itself is never written here"),
        ("${env:NOT_SET}", "not set"),
        ("${file:gone/key}", "there is no folder"),
        ("${plugin:x}", "the key itself is never written here"),
    ],
)
def test_the_place_of_the_encryption_key(tmp_path: Path, key: str, words: str) -> None:
    """The setting is a place, not a key."""
    with pytest.raises(DocumentError, match=words):
        load(tmp_path, "a: {type: header, value: x}", f'stores: {{encryption_key: "{key}"}}\n')
