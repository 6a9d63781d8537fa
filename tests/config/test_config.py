"""gateway.yaml: valid settings, and the problems of invalid ones."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from gateway.callers.methods import NoAuth
from gateway.config import SETTINGS, Config, load_config
from gateway.config.audit import record_places
from gateway.config.credentials import TYPES
from gateway.credentials import OAuth
from gateway.errors import DocumentError
from tests.documents.replacing import unknown_keys
from tests.leaks.marks import MARK

POLICY = """\
version: 1
backends:
  shop: {url: https://shop.example.com, credential: shop-service}
routes:
  - {path: /api/cart, methods: [GET]}
"""

CREDENTIAL = """\
credentials:
  shop-service: {type: client_credentials, issuer: https://login.example, client_id: cart, client_secret: "${env:S}"}
"""

APPS = "apps: {cart: {source: web, policy: cart.yaml}}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a web app and its policy."""
    (tmp_path / "web").mkdir()
    (tmp_path / "web" / "index.html").write_text("<!doctype html>")
    (tmp_path / "cart.yaml").write_text(POLICY)
    return tmp_path


def load(folder: Path, text: str, environ: Mapping[str, str] | None = None) -> Config:
    """Load `text` as the configuration."""
    (folder / "gateway.yaml").write_text(text)
    return load_config(folder / "gateway.yaml", {"S": f"s3cret-{MARK}"} if environ is None else environ)


def problems(folder: Path, text: str, environ: Mapping[str, str] | None = None) -> list[str]:
    """The problems of an invalid configuration: `file:line:column: message`, without the file's folder."""
    with pytest.raises(DocumentError) as raised:
        load(folder, text, environ)
    return [str(problem).removeprefix(f"{folder}/") for problem in raised.value.problems]


def test_the_smallest_configuration_has_the_documented_defaults(folder: Path) -> None:
    """An app and its policy are sufficient."""
    config = load(folder, APPS + CREDENTIAL)
    assert (config.server.host, config.server.port) == ("127.0.0.1", 8080)
    assert config.server.public_url == "http://localhost:8080"
    assert not config.server.busy_poll
    assert config.server.http_client == "gateway"
    assert config.server.origins.console == "http://gateway.localhost:8080"
    assert config.server.origins.app("cart") == "http://cart.localhost:8080"
    assert config.server.origins.sandbox == "http://sandbox.localhost:8080"
    assert (config.auth, config.plugins) == ((NoAuth(),), ())
    assert config.database.reveal() == f"sqlite:///{folder}/gateway.db"
    assert config.journal == folder / "gateway.journal"
    assert config.approvals.timeout == 120.0
    assert (config.audit.on_failure, config.audit.redact) == ("refuse-unsafe", ())
    app = config.apps["cart"]
    assert (app.id, app.title, app.unproven, app.trust_view_gestures) == ("cart", "Cart", "as-model", False)
    assert app.source == folder / "web"
    assert list(app.policy.backends) == ["shop"]


def test_everything_can_be_set(folder: Path) -> None:
    """Every setting with a non-default value is read."""
    (folder / "plugins").mkdir()
    (folder / "plugins" / "mock.py").touch()
    config = load(
        folder,
        """\
server:
  listen: "[::1]:9000"
  http_client: aiohttp
  public_url: https://gateway.example.com
  origins:
    console: https://gateway.example.com
    apps: https://{app}.apps.example.net
    sandbox: https://sandbox.example.org:8443
auth: [none]
apps:
  cart: {source: web/index.html, policy: cart.yaml, title: The cart, unproven: deny, trust_view_gestures: true}
credentials:
  shop-service:
    type: client_credentials
    issuer: http://127.0.0.1:9999
    token_endpoint: http://auth.localhost:9999/token
    client_id: cart
    client_secret: "${env:S}"
    scope: [cart, orders]
    network: [10.0.0.0/8, private]
stores: {database: "sqlite:///web/record.db", journal: web/record.journal}
approvals: {timeout: 30s}
audit: {on_failure: refuse, redact: ["$.password", "$..card_number"]}
plugins: [my_package.approver, plugins/mock.py]
""",
    )
    assert (config.server.host, config.server.port) == ("::1", 9000)
    assert config.server.http_client == "aiohttp"
    assert config.server.public_url == "https://gateway.example.com"
    assert config.server.origins.app("cart") == "https://cart.apps.example.net"
    app = config.apps["cart"]
    assert (app.title, app.unproven, app.trust_view_gestures) == ("The cart", "deny", True)
    credential = config.credentials["shop-service"]
    assert isinstance(credential, OAuth)
    assert (credential.name, credential.server.issuer) == ("shop-service", "http://127.0.0.1:9999")
    assert credential.server.token_endpoint == "http://auth.localhost:9999/token"
    assert credential.scope == ("cart", "orders")
    assert credential.network.allows("10.1.2.3")
    assert credential.network.allows("127.0.0.1")
    assert not credential.network.allows("93.184.216.34")
    assert config.database.reveal() == f"sqlite:///{folder}/web/record.db"
    assert config.journal == folder / "web/record.journal"
    assert config.approvals.timeout == 30.0
    assert (config.audit.on_failure, config.audit.redact) == ("refuse", ("$.password", "$..card_number"))
    assert config.plugins == ("my_package.approver", "plugins/mock.py")


def client_secret(config: Config) -> str:
    """The client secret of the one credential."""
    credential = config.credentials["shop-service"]
    assert isinstance(credential, OAuth)
    assert credential.client.secret is not None
    return credential.client.secret.reveal()


@pytest.mark.parametrize("source", [".", "..", "web/..", "./"])
def test_an_app_does_not_lie_where_the_gateways_own_files_are(folder: Path, source: str) -> None:
    """Its site and its views serve every file of its folder, which would include keys, database and record."""
    (problem,) = problems(folder, f'apps: {{cart: {{source: "{source}", policy: cart.yaml}}}}\n{CREDENTIAL}')
    assert "put the app in a separate folder" in problem


def test_a_secret_comes_from_the_environment_and_does_not_show(folder: Path) -> None:
    """`${env:NAME}` is read from the given environment."""
    config = load(folder, APPS + CREDENTIAL, {"S": f"hush-{MARK}"})
    assert client_secret(config) == f"hush-{MARK}"
    assert f"hush-{MARK}" not in repr(config)


def test_a_secret_comes_from_a_file(folder: Path) -> None:
    """`${file:path}` is relative to the configuration, and a closing line break is no part of the secret."""
    (folder / "secret.txt").write_text(f"from file {MARK}\n")
    config = load(folder, APPS + CREDENTIAL.replace("${env:S}", "${file:secret.txt}"))
    assert client_secret(config) == f"from file {MARK}"


def test_a_missing_variable_is_named(folder: Path) -> None:
    """The message names the variable and the place."""
    assert problems(folder, APPS + CREDENTIAL, {}) == [
        "gateway.yaml:3:107: client_secret: the environment variable S is not set: export it before you start, "
        "and restart a gateway that runs; a ${file:path} is read while it runs"
    ]


@pytest.mark.parametrize("which", ["gateway.yaml", "cart.yaml", "secret"])
def test_a_pipe_is_no_file(folder: Path, which: str) -> None:
    """This holds for gateway.yaml, a policy and a secret: reading would block a reload forever."""
    text = APPS + CREDENTIAL.replace("env:S", "file:secret")
    (folder / "gateway.yaml").write_text(text)
    (folder / "secret").write_text("x")
    (folder / which).unlink()
    os.mkfifo(folder / which)
    with pytest.raises(DocumentError, match=rf"{which}.*cannot be read: it is a pipe"):
        load_config(folder / "gateway.yaml", {})


def test_a_missing_secret_file_is_named(folder: Path) -> None:
    """The message names the file and the reason."""
    (found,) = problems(folder, APPS + CREDENTIAL.replace("${env:S}", "${file:gone.txt}"))
    assert found.endswith(f"the file {folder}/gone.txt cannot be read: No such file or directory")


@pytest.mark.parametrize(
    "text",
    [
        APPS.replace("web,", "'${env:S}',") + CREDENTIAL,
        APPS + CREDENTIAL + "plugins: ['${file:web/index.html}']\n",
        APPS + CREDENTIAL.replace("client_id: cart", "client_id: '${env:S}'"),
    ],
)
def test_secrets_are_read_only_where_secrets_belong(folder: Path, text: str) -> None:
    """A reference in another place is refused, and its value does not appear."""
    found = problems(folder, text)
    assert any("are for secrets: only" in problem for problem in found)
    assert "s3cret" not in "".join(found)


def test_a_reference_is_the_whole_secret(folder: Path) -> None:
    """Surrounding text would become part of the secret."""
    (found,) = problems(folder, APPS + CREDENTIAL.replace("${env:S}", "x${env:S}"))
    assert "as the whole value" in found


def test_all_problems_come_at_once_with_their_places(folder: Path) -> None:
    """Unknown keys, wrong types and wrong values are listed at once, in the order of the file."""
    text = """\
server: {listen: 8080, ports: 1}
apps:
  Cart_1: {source: web, policy: cart.yaml}
  open: {source: nowhere, policy: cart.yaml, unproven: maybe}
credentials:
  shop-service: {type: password, issuer: http://login.example.com, client_id: cart, client_secret: x}
approvals: {timeout: 2}
audit: {on_failure: ignore, redact: [password]}
"""
    places = [problem.split(": ", 1)[0] for problem in problems(folder, text)]
    assert places == [
        "gateway.yaml:1:18",
        "gateway.yaml:1:24",
        "gateway.yaml:3:11",
        "gateway.yaml:4:9",
        "gateway.yaml:4:18",
        "gateway.yaml:4:56",
        "gateway.yaml:6:24",
        "gateway.yaml:7:22",
        "gateway.yaml:8:21",
        "gateway.yaml:8:37",
    ]


def test_storage_is_kept_for_pages_of_our_own(folder: Path) -> None:
    """Storage on the gateway is opt-in, and not available to the page of an upstream's app."""
    app = "apps:\n  cart: {source: web, policy: cart.yaml, storage: gateway}\n"
    assert load(folder, app + CREDENTIAL).apps["cart"].storage == "gateway"
    far = '{source: {upstream: far, resource: "ui://far/app.html"}, policy: cart.yaml, storage: gateway}'
    text = f"apps:\n  a: {{source: web, policy: cart.yaml, storage: disk}}\n  b: {far}\n"
    found = problems(folder, f"{text}upstreams: {{far: {{command: [python]}}}}\n{CREDENTIAL}")
    assert [problem.partition(": ")[2] for problem in found] == [
        'storage: must be one of page, gateway, not the text "disk"',
        "storage: is for a folder or a file: the page of an upstream's app is not the gateway's",
    ]


def test_problems_of_policies_come_with_those_of_the_configuration(folder: Path) -> None:
    """One run lists the problems of every file."""
    (folder / "cart.yaml").write_text(POLICY + "nonsense: 1\n")
    found = problems(folder, APPS + CREDENTIAL + "nonsense: 1\n")
    assert [problem.split(": ", 1)[0] for problem in found] == ["gateway.yaml:4:1", "cart.yaml:6:1"]


def test_a_policy_alone_can_be_wrong(folder: Path) -> None:
    """A valid gateway.yaml does not hide an invalid policy."""
    (folder / "cart.yaml").write_text(POLICY + "nonsense: 1\n")
    (found,) = problems(folder, APPS + CREDENTIAL)
    assert found.startswith("cart.yaml:6:1: ")


def test_a_missing_policy_file_is_named(folder: Path) -> None:
    """The message names the file that is not there."""
    (folder / "cart.yaml").unlink()
    assert "cart.yaml" in problems(folder, APPS + CREDENTIAL)[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "",
            [
                "gateway.yaml:1:1: there is nothing to serve: name web apps under apps, MCP servers under upstreams, "
                "or both"
            ],
        ),
        ("apps:", ["gateway.yaml:1:6: apps: must be a mapping, not nothing; an empty one is {}"]),
        ("apps: {}", ["gateway.yaml:1:7: apps: name at least one app"]),
        ("apps: {cart: }", ["gateway.yaml:1:14: cart: must be a mapping, not nothing; an empty one is {}"]),
        ("apps: {cart: {}}", [f'gateway.yaml:1:14: "{key}" is missing' for key in ("source", "policy")]),
        ("apps: {cart: {policy: cart.yaml}}", ['gateway.yaml:1:14: "source" is missing']),
        ("apps: {cart: {source: '', policy: cart.yaml}}", ["gateway.yaml:1:23: source: must not be empty"]),
    ],
)
def test_what_is_wrong_is_said_once(folder: Path, text: str, expected: list[str]) -> None:
    """Consequences of a problem are not reported."""
    (folder / "cart.yaml").write_text("version: 1\n")
    assert problems(folder, text) == expected


@pytest.mark.parametrize("broken", ["gateway.yaml", "cart.yaml"])
def test_a_file_of_other_bytes_is_named_with_the_first(folder: Path, broken: str) -> None:
    """The message is the same for the configuration and for a policy."""
    files = {"gateway.yaml": (APPS + CREDENTIAL).encode(), "cart.yaml": b"version: 1\n"}
    for name, content in files.items():
        (folder / name).write_bytes(content + (b"# \xe9\n" if name == broken else b""))
    with pytest.raises(DocumentError) as found:
        load_config(folder / "gateway.yaml", {})
    place = len(files[broken]) + 2
    assert f"{broken}:1:1: not UTF-8: invalid continuation byte at byte {place}: save the file so" in str(found.value)


def test_a_policy_may_only_name_credentials_that_exist(folder: Path) -> None:
    """The message lists backend, credential and the existing ones."""
    assert problems(folder, APPS) == [
        'gateway.yaml:1:36: policy: backend "shop" of cart.yaml names the credential "shop-service", '
        "which is not under credentials (none is defined)"
    ]


@pytest.mark.parametrize("address", ["0.0.0.0:8080", "192.168.1.4:8080", "[::]:8080", "gateway.example.com:80"])
def test_other_machines_cannot_reach_a_gateway_without_authentication(folder: Path, address: str) -> None:
    """Only loopback is allowed while auth is none."""
    (found,) = problems(folder, f'server: {{listen: "{address}"}}\n' + APPS + CREDENTIAL)
    assert "`auth` lets everybody in (none): listen on 127.0.0.1" in found


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", "a b:80", "::1:80", ":80", ""])
def test_a_wrong_address_is_refused_with_an_example(folder: Path, address: str) -> None:
    """The message shows the format of an address."""
    (found,) = problems(folder, f'server: {{listen: "{address}"}}\n' + APPS + CREDENTIAL)
    assert "such as 127.0.0.1:8080" in found


def test_a_port_alone_is_told_how_an_address_is_written(folder: Path) -> None:
    """Quotes around it would not help."""
    (found,) = problems(folder, "server: {listen: 8391}\n" + APPS + CREDENTIAL)
    assert "such as 127.0.0.1:8080" in found
    assert "quotes" not in found


@pytest.mark.parametrize(
    ("auth", "message"),
    [
        ("[tokn]", 'must be one of none, token, oauth, proxy, not the text "tokn", did you mean "token"?'),
        ("token", 'must be a list, not the text "token"; write [token]'),
        ("[proxy]", '"proxy" needs more keys: write it as a mapping with `type: proxy`'),
        (
            "[{type: oauth, issuer: 'https://id.example.com', algorithms: [RS25]}]",
            'not "RS25", did you mean "RS256"?',
        ),
    ],
)
def test_the_remedy_for_a_wrong_method_is_named(folder: Path, auth: str, message: str) -> None:
    """A near name is offered."""
    assert any(message in problem for problem in problems(folder, APPS + CREDENTIAL + f"auth: {auth}\n"))


WHOLE = """\
server: {listen: "127.0.0.1:9000", http_client: aiohttp, public_url: https://gateway.example.com, busy_poll: false,
  trusted_proxies: [10.0.0.1], client_header: forwarded, fast_path: true, connections: 1, connections_each: 1,
  requests_each: 1, origins: {console: https://gateway.example.com, apps: "https://{app}.apps.example.net",
  sandbox: https://sandbox.example.org}}
auth:
  - token
  - {type: proxy, name: front, header: x-user, roles_header: x-roles, proxies: [10.0.0.1]}
  - {type: oauth, issuer: https://id.example.com, audience: a, algorithms: [RS256], scope: [a], roles_claim: r,
    client_id: a, client_secret: b, login_scope: [openid], introspection: true, skew: 10s, session: 1h, logout: gateway,
    network: public}
roles: {user: [a], approver: [b], auditor: [c], admin: [d]}
apps:
  cart: {source: web, policy: cart.yaml, title: The cart, unproven: deny, trust_view_gestures: true,
    permissions: [camera], storage: gateway}
upstreams:
  far: {url: https://mcp.example.com/mcp, credential: shop-service, network: public, prefix: f, include: [a],
    exclude: [b], policy: cart.yaml, trust: t, runtime: true, allow: [eval], lazy: false, start: 1s, timeout: 1s,
    message: 1MiB, calls: 1, connections: 1}
  near: {command: [sh], cwd: web, env: {A: b}}
credentials:
  fixed: {type: header, header: x-key, prefix: Key, value: a}
  plain: {type: basic, username: a, password: b}
  shop-service: {type: client_credentials, issuer: https://id.example.com, token_endpoint: https://id.example.com/token,
    revocation_endpoint: https://id.example.com/revoke, client_id: a, client_secret: b,
    client_auth: client_secret_basic, scope: [a],
    resource: "https://shop.example.com/", dpop: true, title: Shop, network: public}
  person: {type: authorization_code, issuer: https://id.example.com, client_id: a, callback: own,
    authorization_endpoint: https://id.example.com/authorize}
  changed: {type: token_exchange, issuer: https://id.example.com, client_id: a, client_secret: b, subject: person,
    actor: shop-service, audience: a, requested_token_type: jwt, subject_token_type: id_token}
  asserted: {type: jwt_bearer, issuer: https://id.example.com, client_id: a, client_secret: b, assertion: person,
    audience: a, subject: b}
stores: {database: "sqlite:///gateway.db", redis: "redis://a", journal: a.journal, encryption_key: "${file:key}"}
approvals: {timeout: 30s, ask: [console, webhook, elicitation], presence: none, interactive: [a],
  webhook: {url: https://a.example.com/, secret: "01234567890123456789012345678901", answers: true, network: public}}
mcp: {fast_path: true, sessions: 1, sessions_each: 1, session_idle: 1m, views_each: 1, bodies: 64MiB,
  bodies_each: 64MiB}
audit: {on_failure: refuse, redact: ["$.password"], sinks: [database, otlp], retain: 90d, fsync: always, key: abc,
  rotate: {size: 1MiB, every: 1d}, refusals: 1}
telemetry: {otlp: https://otel.example.com, authorization: Bearer a, network: public}
log: json
plugins: []
"""
"""A configuration with nearly every key."""


def test_a_problem_in_one_key_makes_no_other_key_unknown(folder: Path) -> None:
    """Each value in turn is replaced with invalid ones: the other keys of its mapping are read all the same."""
    assert list(unknown_keys(WHOLE, lambda text: load(folder, text))) == []


@pytest.mark.parametrize("auth", ["[basic]", "[{user: x}]", "none", "[1]"])
def test_unknown_authentication_is_refused(folder: Path, auth: str) -> None:
    """The message lists the types of authentication."""
    found = problems(folder, APPS + CREDENTIAL + f"auth: {auth}\n")
    assert any(
        "none, token, oauth, proxy" in problem or "auth: must be" in problem or '"type" is missing' in problem
        for problem in found
    )


@pytest.mark.parametrize(
    "app",
    ["Cart", "1cart", "my_cart", "cart.a", "a" * 25, "http", "open", "list", "call", "webmcp", "gateway", "sandbox"],
)
def test_an_app_id_that_could_be_mistaken_is_refused(folder: Path, app: str) -> None:
    """Ids become tool names and host names: other characters, reserved words and the gateway's sites are refused."""
    assert problems(folder, f'apps: {{"{app}": {{source: web, policy: cart.yaml}}}}\n' + CREDENTIAL)


def test_an_app_id_may_be_24_characters_long(folder: Path) -> None:
    """This is the maximum length."""
    assert list(load(folder, APPS.replace("cart:", f"c{'-' * 22}9:") + CREDENTIAL).apps) == [f"c{'-' * 22}9"]


@pytest.mark.parametrize("text", ["", "apps: {}\n", "apps:\n"])
def test_a_gateway_without_apps_is_refused(folder: Path, text: str) -> None:
    """The configuration must serve something."""
    assert any("apps" in problem for problem in problems(folder, text))


@pytest.mark.parametrize(
    "origins",
    [
        "console: http://x.example, sandbox: http://x.example:81",
        "console: http://gateway.localhost:8080/console",
        "console: gateway.localhost",
        "apps: http://apps.localhost:8080",
        "apps: 'http://{app}.{app}.localhost'",
        "sandbox: ftp://sandbox.localhost",
        "console: http://CART.localhost",
    ],
)
def test_origins_are_origins_and_differ_in_their_hosts(folder: Path, origins: str) -> None:
    """Cookies ignore ports; an origin has no path."""
    assert problems(folder, f"server: {{origins: {{{origins}}}}}\n" + APPS + CREDENTIAL)


DEDICATED = APPS.replace("policy: cart.yaml", "policy: cart.yaml, sandbox: dedicated")
SECURE = "console: https://gateway.shop.test, sandbox: https://box.test, apps: 'https://{app}.pages.test'"


@pytest.mark.parametrize(
    ("origins", "part"),
    [
        (SECURE, "write server.origins.dedicated, such as https://{id}.views.example.org"),
        (f"{SECURE}, dedicated: 'https://{{id}}.views.shop.test'", "shares the site shop.test with console"),
        (f"{SECURE}, dedicated: 'https://{{id}}.box.test'", "shares the site box.test with sandbox"),
        (f"{SECURE}, dedicated: 'https://{{id}}.pages.test'", "shares the site pages.test with apps (cart)"),
        (f"{SECURE}, dedicated: 'http://{{id}}.views.test'", "must be https, as the console is"),
        ("dedicated: 'http://{id}.gateway.localhost:8080'", "shares the site gateway.localhost with console"),
        ("dedicated: 'http://{id}.sandbox.localhost:8080'", "shares the site sandbox.localhost with sandbox"),
        ("dedicated: 'http://{id}.cart.localhost:8080'", "shares the site cart.localhost with apps (cart)"),
        ("dedicated: http://views.localhost:8080", "write {id} as its first label"),
        ("dedicated: 'http://x{id}.localhost:8080'", "write {id} as its first label"),
        ("dedicated: 'http://{id}'", "write {id} as its first label"),
        ("dedicated: 'http://{id}.{id}.localhost'", "https://{id}.views.example.org"),
        ("dedicated: 'http://{id}.localhost/path'", "https://{id}.views.example.org"),
        ("dedicated: 'ftp://{id}.localhost'", "https://{id}.views.example.org"),
    ],
)
def test_a_dedicated_origin_shares_its_site_with_nothing(folder: Path, origins: str, part: str) -> None:
    """Such a gateway does not start: the message names the key and the remedy."""
    found = problems(folder, f"server: {{origins: {{{origins}}}}}\n" + DEDICATED + CREDENTIAL)
    assert any("dedicated: " in one and part in one for one in found), found


@pytest.mark.parametrize(
    "origins",
    [
        "",
        "dedicated: 'http://{id}.views.localhost:8080'",
        f"{SECURE}, dedicated: 'https://{{id}}.views.test'",
        "console: https://a.co.uk, sandbox: https://b.co.uk, apps: 'https://{app}.c.co.uk', "
        "dedicated: 'https://{id}.d.co.uk'",
        "console: https://a.github.io, sandbox: https://b.test, apps: 'https://{app}.c.test', "
        "dedicated: 'https://{id}.github.io'",
    ],
)
def test_a_dedicated_origin_may_be_on_any_other_site(folder: Path, origins: str) -> None:
    """Sites are those of the Public Suffix List; in development each host below localhost is one."""
    config = load(folder, f"server: {{origins: {{{origins}}}}}\n" + DEDICATED + CREDENTIAL)
    assert config.apps["cart"].dedicated
    assert config.server.origins.frame("0abc").partition("//")[2].startswith("0abc.")


def test_frames_are_opaque_by_default_and_other_words_are_refused(folder: Path) -> None:
    """Then the site of dedicated origins is not looked at."""
    assert not load(folder, APPS + CREDENTIAL).apps["cart"].dedicated
    load(folder, f"server: {{origins: {{{SECURE}}}}}\n" + APPS + CREDENTIAL)
    (found,) = problems(folder, DEDICATED.replace("dedicated", "own") + CREDENTIAL)
    assert "sandbox" in found


@pytest.mark.parametrize("domain", ["https://a.example", "a b", "a/b", "*.example", "-a.example"])
def test_the_domain_for_other_hosts_is_a_host_name(folder: Path, domain: str) -> None:
    """Each host defines its form, so the gateway invents none."""
    (found,) = problems(
        folder, APPS.replace("policy: cart.yaml", f"policy: cart.yaml, domain: '{domain}'") + CREDENTIAL
    )
    assert "is no host name" in found


@pytest.mark.parametrize(
    "database", ["mysql://db/gateway", "postgresql://db", "sqlite://", "sqlite:///:memory:", "gateway.db"]
)
def test_other_databases_are_refused(folder: Path, database: str) -> None:
    """A database in memory or of another kind is refused."""
    (found,) = problems(folder, APPS + CREDENTIAL + f'stores: {{database: "{database}"}}\n')
    assert "write sqlite:///path, or postgresql://user:password@host/name" in found


@pytest.mark.parametrize(
    "url",
    [
        "http://db",
        "redis:///0",
        "redis://db/one",
        "redis://db:0",
        "redis://db:66000",
        "redis://db?ssl_ca_certs=ca.pem",
        "rediss://db?ssl_cert_reqs=none",
        "redis://db#a",
        "redis://a b",
        "unix:///redis.sock",
        "redis+cluster://db",
    ],
)
def test_other_urls_of_a_redis_are_refused(folder: Path, url: str) -> None:
    """Also options that would turn off the check of its certificate."""
    (found,) = problems(folder, APPS + CREDENTIAL + f'stores: {{redis: "{url}"}}\n')
    assert "redis: write redis://user:password@host:6379/0, or rediss://" in found


@pytest.mark.parametrize("url", ["redis://db", "redis://:p@[::1]:6380/2", "rediss://u:p@db/0?ssl_ca_certs=/ca.pem"])
def test_the_url_of_a_redis_is_a_secret(folder: Path, url: str) -> None:
    """It may come from the environment, as its password should."""
    text = APPS + CREDENTIAL + 'stores: {redis: "${env:REDIS}"}\n'
    (folder / "gateway.yaml").write_text(text)
    config = load_config(folder / "gateway.yaml", {"S": "s", "REDIS": url})
    assert config.redis is not None
    assert config.redis.reveal() == url
    assert url not in repr(config)


def test_a_policy_that_is_not_there_is_named_where_it_is_asked_for(folder: Path) -> None:
    """The problem has the line of gateway.yaml, since the missing file has none."""
    (found,) = problems(folder, "apps: {cart: {source: web, policy: gone.yaml}}\n")
    assert found == f"gateway.yaml:1:36: policy: there is no file {folder}/gone.yaml"


def test_a_story_is_read_step_by_step(folder: Path) -> None:
    """Each problem has its line and its key; a good story is handed to the console as it is written."""
    text = APPS.replace("cart.yaml}", "cart.yaml, story: {title: T, steps: [STEP]}}") + CREDENTIAL
    step = "{caption: Adds, tool: add, arguments: {n: 1}}"
    (folder / "gateway.yaml").write_text(text.replace("STEP", step))
    story = load_config(folder / "gateway.yaml", {"S": "s"}).apps["cart"].story
    assert story == {"title": "T", "steps": [{"caption": "Adds", "tool": "add", "arguments": {"n": 1}}]}
    for wrong, said in {
        "": "steps: must have at least one step",
        "{tool: add}": '"caption" is missing',
        "{caption: C, arguments: [1]}": "arguments: must be a mapping, not a list",
        "{caption: C, call: add}": 'unknown key "call"',
        "{caption: C, list: perhaps}": "list: must be true or false",
    }.items():
        (found,) = problems(folder, text.replace("STEP", wrong))
        assert said in found


def test_plugins_that_are_no_list_are_one_problem(folder: Path) -> None:
    """The reader reads the key several times."""
    (found,) = problems(folder, APPS + CREDENTIAL + "plugins: nope.py\n")
    assert "plugins: must be a list" in found


def test_a_plugin_that_is_not_there_is_named_where_it_is_asked_for(folder: Path) -> None:
    """The problem has the line of gateway.yaml."""
    (found,) = problems(folder, "plugins: [gone.py]\n" + APPS + CREDENTIAL)
    assert found == f"gateway.yaml:1:11: plugins: there is no file {folder}/gone.py"


def test_a_way_of_asking_that_stands_in_no_list_is_one_problem(folder: Path) -> None:
    """No second problem mentions an empty list."""
    (found,) = problems(folder, APPS + CREDENTIAL + "approvals: {ask: consol}\n")
    assert "ask: must be a list" in found


def test_a_file_that_is_not_there_is_a_problem_like_others(tmp_path: Path) -> None:
    """A wrong path causes no traceback."""
    with pytest.raises(DocumentError, match="cannot be read: No such file or directory; `webmcp-gateway init`"):
        load_config(tmp_path / "gateway.yaml", {})


@pytest.mark.parametrize("section", sorted({setting.key.rpartition(".")[0] for setting in SETTINGS}))
def test_every_key_that_is_read_is_declared_and_every_declared_key_is_read(folder: Path, section: str) -> None:
    """The table of settings, from which the documentation is generated, matches the reader."""
    allowed: set[str] = set()
    for first in [f"type: {name}, " for name in TYPES] if section == "credentials.<name>" else [""]:
        text = f"{first}zz: 1"
        for part in reversed(section.split(".") if section else []):
            name = part.removesuffix("[]").replace("<name>", "cart")
            text = f"{name}: [{{{text}}}]" if part.endswith("[]") else f"{name}: {{{text}}}"
        listed = [problem for problem in problems(folder, text) if 'unknown key "zz"' in problem]
        taken = re.search(r"allowed: (.*)\)", listed[0])
        assert taken is not None
        allowed |= set(taken[1].split(", "))
    prefix = f"{section}." if section else ""
    declared = {
        s.key.removeprefix(prefix).partition(".")[0].removesuffix("[]") for s in SETTINGS if s.key.startswith(prefix)
    }
    assert allowed == declared


@pytest.mark.parametrize("place", ["/", "."])
def test_a_journal_is_a_file(folder: Path, place: str) -> None:
    """A folder is refused with the remedy, also by the commands that read the record alone."""
    (found,) = problems(folder, APPS + CREDENTIAL + f"stores: {{journal: {place}}}\n")
    assert "journal: write the path of a file" in found
    with pytest.raises(DocumentError, match="write the path of a file"):
        record_places(folder / "gateway.yaml", {})


LONG = "n" * 300
"""A name that no file system takes."""


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        (f"apps:\n  cart: {{source: {LONG}, policy: cart.yaml}}\n", 2, "too long"),
        (f"apps:\n  cart:\n    source: web\n    policy: {LONG}.yaml\n", 4, "too long"),
        (f"server:\n  state_dir: {LONG}\n", 2, "too long"),
        (f"policy:\n\n  organisation: {LONG}\n", 3, "too long"),
        (f"stores:\n  journal: {LONG}\n", 2, "too long"),
        ('telemetry:\n  otlp: https://otlp.test\n  authorities: "\\0"\n', 3, "NUL"),
    ],
)
def test_a_path_that_the_system_refuses_is_named_with_its_line(folder: Path, text: str, line: int, word: str) -> None:
    """Also while the gateway runs, which then keeps the configuration from before."""
    with pytest.raises(DocumentError) as raised:
        load(folder, text, {})
    assert [one.line for one in raised.value.problems if word in one.message] == [line]
