"""Every setting of gateway.yaml, declared once, with its default and one line of help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of gateway.yaml. `<name>` in `key` is any name, `[]` an item of a list.

    `default` is written as in the file; None if the key is required. `PORT` in it is the port of `server.listen`.
    """

    key: str
    default: str | None
    help: str


SETTINGS: Final = (
    Setting("server.listen", "127.0.0.1:8080", "Address and port; another than loopback needs auth other than none."),
    Setting("server.public_url", "http://localhost:PORT", "Where MCP clients reach the gateway; its /mcp is below."),
    Setting("server.origins.console", "http://gateway.localhost:PORT", "The origin of the console and the bridge."),
    Setting("server.origins.apps", "http://{app}.localhost:PORT", "The origin of each app as an ordinary web site."),
    Setting("server.origins.sandbox", "http://sandbox.localhost:PORT", "The origin of the sandbox proxy of views."),
    Setting("server.trusted_proxies", "[]", "Addresses and CIDRs whose Forwarded and X-Forwarded-For are believed."),
    Setting(
        "server.busy_poll",
        "true",
        "Look for 0.2 ms for what comes next before sleeping, as long as that finds it; false if CPU time is scarce.",
    ),
    Setting(
        "server.connections",
        "10000",
        "Connections of clients that may be open; fewer where the system lets the process have few files.",
    ),
    Setting(
        "server.connections_each",
        "1000",
        "Those from one address (of IPv6 its first 64 bits); proxies and this machine may have all.",
    ),
    Setting(
        "server.requests_each",
        "1000",
        "Requests of one person that may be in flight, and as many streams of MCP clients that stay open.",
    ),
    Setting("auth", "[none]", "How callers prove who they are; the first entry that matches counts."),
    Setting(
        "auth[].type",
        None,
        "none (loopback alone), token (the gateway's own), oauth, or proxy (its header).",
    ),
    Setting("auth[].issuer", None, "oauth: the authorization server, as its metadata and its tokens name it."),
    Setting(
        "auth[].audience",
        "PUBLIC_URL",
        "oauth: what tokens must be for; at /mcp its own URL is right too.",
    ),
    Setting("auth[].algorithms", "", "oauth: signatures that are taken; left out, RS, PS, ES and EdDSA."),
    Setting("auth[].scope", "[]", "oauth: the scopes that a token must have."),
    Setting("auth[].roles_claim", "roles", "oauth: the claim that lists roles; realm_access.roles looks inside."),
    Setting("auth[].client_id", "", "oauth: the gateway as its client, so that people can log in to the console."),
    Setting("auth[].client_secret", "", "oauth: that client's secret, if it has one: ${env:NAME} or ${file:path}."),
    Setting("auth[].login_scope", "[openid]", "oauth: the scopes that the console's login asks for."),
    Setting("auth[].introspection", "false", "oauth: ask the issuer about tokens that are no JWT (RFC 7662)."),
    Setting("auth[].skew", "30s", "oauth: by how much the issuer's clock may differ."),
    Setting("auth[].session", "12h", "oauth: how long a login to the console lasts."),
    Setting(
        "auth[].logout", "issuer", "oauth: where a logout ends the login: here and at the issuer, or gateway alone."
    ),
    Setting("auth[].network", "public", "oauth: where the issuer may be: public, private, or a list of CIDRs."),
    Setting("auth[].name", None, "proxy: what it is called; its people are of the issuer proxy:<name>."),
    Setting("auth[].header", None, "proxy: the header in which it names the person."),
    Setting("auth[].roles_header", "", "proxy: the header in which it lists roles, parted by commas."),
    Setting("auth[].proxies", None, "proxy: the addresses from which these headers are believed."),
    Setting("roles.user", "", "Values of the roles claim that may use apps and MCP; left out, everybody may."),
    Setting("roles.approver", "[]", "Values that may answer what others are asked; all answer for themselves."),
    Setting("roles.auditor", "[]", "Values that may read the whole record."),
    Setting("roles.admin", "[]", "Values that may do everything but answer for others."),
    Setting("apps.<name>.source", None, "The folder or the HTML file of the web app, or the app of an upstream:"),
    Setting("apps.<name>.source.upstream", "", "the name of the upstream,"),
    Setting("apps.<name>.source.resource", "", "the address that the app has there, such as ui://board/app.html,"),
    Setting("apps.<name>.source.tool", "", "and the tool with whose result it is shown, called without arguments."),
    Setting("apps.<name>.policy", None, "The policy file of the app."),
    Setting("apps.<name>.title", "", "The name that people see; left out, the id with a capital letter."),
    Setting("apps.<name>.unproven", "as-model", "What a call without view proof is worth: as-model, or deny."),
    Setting(
        "apps.<name>.permissions",
        "[]",
        "What the page may have where it uses it: camera, microphone, geolocation, clipboard-write.",
    ),
    Setting(
        "apps.<name>.storage",
        "page",
        "Where localStorage of its views is kept: page (as long as that lives), or gateway (per person, sealed).",
    ),
    Setting("apps.<name>.trust_view_gestures", "false", "Whether the view's own word on a person's gesture is taken."),
    Setting("upstreams.<name>.command", "", "An MCP server as a process: a list of the program and its arguments."),
    Setting("upstreams.<name>.cwd", ".", "The folder in which the command runs."),
    Setting(
        "upstreams.<name>.env", "{}", "Its variables: values, ${env:NAME} or ${file:path}; few others are handed on."
    ),
    Setting("upstreams.<name>.url", "", "An MCP server by Streamable HTTP, in either era of the protocol."),
    Setting("upstreams.<name>.sse", "", "An MCP server by the older HTTP with SSE (2024-11-05)."),
    Setting("upstreams.<name>.websocket", "", "An MCP server by WebSocket: ws:// or wss://."),
    Setting("upstreams.<name>.server", "", "A server of the MCP SDK in this process: module:object."),
    Setting("upstreams.<name>.credential", "", "The credential that is sent with each request to a URL."),
    Setting("upstreams.<name>.network", "public", "Where a URL may be: public, private, or a list of CIDRs."),
    Setting("upstreams.<name>.policy", "", "A policy file whose `tools` say what may be called; left out, every tool."),
    Setting("upstreams.<name>.include", "[*]", "The tools that are offered: patterns of their names."),
    Setting("upstreams.<name>.exclude", "[]", "The tools that are not."),
    Setting("upstreams.<name>.prefix", "<name>", "What its names begin with on /mcp; null: nothing."),
    Setting("upstreams.<name>.trust", "", "The group of upstreams whose apps may stand beside each other on /mcp."),
    Setting("upstreams.<name>.runtime", "false", "Whether its apps get the view runtime of the gateway."),
    Setting(
        "upstreams.<name>.allow",
        "[]",
        "What its apps may beyond the content security policy of MCP Apps: `blob-workers` (workers from `blob:` URLs), "
        "`eval` (JavaScript from strings), `wasm` (WebAssembly).",
    ),
    Setting("upstreams.<name>.lazy", "true", "Whether it is started when it is first needed, not with the gateway."),
    Setting("upstreams.<name>.start", "30s", "How long it may take to begin, by default 2m for a command."),
    Setting("upstreams.<name>.timeout", "60s", "How long it may be silent about a call."),
    Setting("upstreams.<name>.message", "16MiB", "The largest message that it may send."),
    Setting("upstreams.<name>.calls", "256", "Calls that may be in flight; one principal gets half of them."),
    Setting("upstreams.<name>.connections", "16", "Connections that it may have; one principal gets half of them."),
    Setting(
        "credentials.<name>.type",
        None,
        "header, basic, client_credentials, authorization_code, token_exchange, jwt_bearer, or a plugin's.",
    ),
    Setting("credentials.<name>.header", "authorization", "header: the header field that carries the value."),
    Setting("credentials.<name>.prefix", "", "header: what stands before the value, such as Bearer."),
    Setting("credentials.<name>.value", None, "header: the secret value."),
    Setting("credentials.<name>.username", None, "basic: the user name."),
    Setting("credentials.<name>.password", None, "basic: the password."),
    Setting("credentials.<name>.issuer", None, "The authorization server's URL; its metadata name the endpoints."),
    Setting("credentials.<name>.token_endpoint", "", "The token endpoint's URL; left out, it is looked up."),
    Setting(
        "credentials.<name>.authorization_endpoint",
        "",
        "authorization_code: where people log in; left out, it is looked up.",
    ),
    Setting(
        "credentials.<name>.callback",
        "shared",
        "authorization_code: shared is /oauth/callback, own an address of its own below it: /oauth/callback/<name>.",
    ),
    Setting("credentials.<name>.revocation_endpoint", "", "Where tokens are revoked; left out, it is looked up."),
    Setting("credentials.<name>.client_id", None, "The gateway's client id at the authorization server."),
    Setting("credentials.<name>.client_secret", "", "The client's secret."),
    Setting(
        "credentials.<name>.client_auth",
        "",
        "How the client proves who it is: client_secret_basic, client_secret_post, private_key_jwt, tls_client_auth, "
        "self_signed_tls_client_auth, none; left out, what fits to what is given here and to the server's metadata.",
    ),
    Setting(
        "credentials.<name>.private_key",
        "",
        "A private key in PEM, for private_key_jwt, or for the assertions of jwt_bearer.",
    ),
    Setting("credentials.<name>.key_id", "", "The `kid` of private_key."),
    Setting("credentials.<name>.algorithm", "", "The algorithm of private_key; left out, the usual one of its kind."),
    Setting("credentials.<name>.certificate", "", "The file of a client certificate, for tls_client_auth."),
    Setting("credentials.<name>.certificate_key", "", "The file of its key; left out, it is in the same file."),
    Setting(
        "credentials.<name>.authorities",
        "",
        "A file of certificate authorities that are trusted for this server, beside the system's.",
    ),
    Setting("credentials.<name>.scope", "[]", "The scopes to ask for."),
    Setting("credentials.<name>.resource", "", "The resource for which tokens are asked for (RFC 8707)."),
    Setting(
        "credentials.<name>.dpop",
        "false",
        "Whether tokens are bound to a key, and each request proves its possession (RFC 9449).",
    ),
    Setting(
        "credentials.<name>.title",
        "",
        "authorization_code: what people call the service; left out, the name of the credential.",
    ),
    Setting(
        "credentials.<name>.subject",
        "",
        "token_exchange: the credential whose token is exchanged; jwt_bearer: whom the assertion speaks for.",
    ),
    Setting("credentials.<name>.actor", "", "token_exchange: the credential that acts for the subject."),
    Setting(
        "credentials.<name>.audience",
        "",
        "token_exchange: for whom the token is; jwt_bearer: `aud` of the assertion; left out, the issuer.",
    ),
    Setting(
        "credentials.<name>.subject_token_type",
        "access_token",
        "token_exchange: what of the subject is exchanged: access_token, or id_token, which says who logged in.",
    ),
    Setting(
        "credentials.<name>.requested_token_type",
        "",
        "token_exchange: access_token, id_token, jwt or id-jag; left out, the server decides.",
    ),
    Setting(
        "credentials.<name>.subject_claim",
        "",
        "jwt_bearer: the claim of the caller whom the assertion speaks for, such as sub or email.",
    ),
    Setting("credentials.<name>.assertion", "", "jwt_bearer: a credential whose token is the assertion."),
    Setting("credentials.<name>.network", "public", "Where the server may be: public, private, or a list of CIDRs."),
    Setting("log", "text", "How the log is written: text, or json, one object per line."),
    Setting(
        "stores.database", "sqlite:///gateway.db", "sqlite:///path or postgresql://…; ${env:…} if it has a password."
    ),
    Setting("stores.journal", "gateway.journal", "The file to which the record is written first."),
    Setting(
        "stores.encryption_key",
        "${file:gateway.key}",
        "The key of stored tokens: ${env:NAME}, ${file:path} (made if it is not there), or keyring.",
    ),
    Setting("approvals.ask", "[console, elicitation, cli]", "How people are asked: also webhook and plugin."),
    Setting("approvals.timeout", "2m", "How long a question to a person stays open."),
    Setting("approvals.presence", "none", "What an approval takes besides a click: none, or webauthn, a touched key."),
    Setting("approvals.interactive", "[]", "Client ids that may ask for a typed code instead of opening the page."),
    Setting("approvals.webhook.url", "", "Where questions are sent, for instance to a chat bot."),
    Setting("approvals.webhook.secret", "", "What signs them, 32 characters or more: ${env:NAME} or ${file:path}."),
    Setting("approvals.webhook.answers", "false", "Whether signed answers that come back count."),
    Setting("approvals.webhook.network", "public", "Where it may be: public, private, or a list of CIDRs."),
    Setting("audit.on_failure", "refuse-unsafe", "Without a record: refuse-unsafe methods, refuse all, or continue."),
    Setting("audit.redact", "[]", "What the record must not hold, as JSON paths: $.password, $..token."),
    Setting("audit.sinks", "[database]", "Where the record goes beside the journal: database, otlp."),
    Setting("audit.retain", "", "How long values are kept, such as 90d; left out, for ever. The chain stays."),
    Setting(
        "audit.fsync", "never", "Whether each line waits for the disk: always survives a loss of power, and costs."
    ),
    Setting(
        "audit.refusals",
        "120",
        "Refusals of one caller in a minute that have a line each in the record; one more line counts the rest.",
    ),
    Setting("audit.key", "", "The signing key, 32 bytes in base64: ${env:…}; left out, a file beside the journal."),
    Setting("audit.rotate.size", "1GB", "After how many bytes the journal goes on in a new file."),
    Setting("audit.rotate.every", "", "After what time it does so as well, such as 1d."),
    Setting("mcp.fast_path", "true", "Carry an app's requests past the MCP SDK where nothing about them is unusual."),
    Setting("mcp.sessions", "10000", "Sessions of older MCP protocols that may be open at once, in each mount."),
    Setting("mcp.sessions_each", "1000", "Those that one caller may have open in one mount."),
    Setting("mcp.session_idle", "30m", "After how long without a request such a session ends."),
    Setting(
        "mcp.views_each",
        "32",
        "Live views that one person may have: a page that opens more harms itself alone. One of a chat that was silent "
        "for five minutes gives its place to another.",
    ),
    Setting(
        "mcp.bodies",
        "1GiB",
        "Bytes of large bodies, of requests and of the bridge, that may be under way, and as many of answers.",
    ),
    Setting("mcp.bodies_each", "256MiB", "Those of one caller."),
    Setting("telemetry.otlp", "", "Traces go to this OTLP/HTTP collector, such as http://127.0.0.1:4318."),
    Setting("telemetry.authorization", "", "The collector's Authorization header: ${env:NAME} or ${file:path}."),
    Setting("telemetry.network", "private", "Where the collector may be: public, private, or a list of CIDRs."),
    Setting("plugins", "[]", "Modules, or .py files; only what is named here is loaded."),
)
"""In the order of the file."""

DEFAULTS: Final = {setting.key: setting.default or "" for setting in SETTINGS}

UNAVAILABLE: Final = {
    "": ("hosts",),
    "stores": ("redis",),
}
"""Planned keys that are not available yet, by section."""
