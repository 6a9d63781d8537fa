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
    Setting(
        "server.listen",
        "127.0.0.1:8080",
        "The address and port to listen on; an address other than loopback requires auth other than none.",
    ),
    Setting(
        "server.public_url",
        "http://localhost:PORT",
        "The URL at which MCP clients reach the gateway; its /mcp is below it.",
    ),
    Setting(
        "server.state_dir",
        "",
        "The folder of everything that the gateway writes: record, database, keys, lock file and log; paths under "
        "`stores` are relative to it. By default it is the folder of this file. It is created if only the last part of "
        "its path is missing.",
    ),
    Setting(
        "server.admin_listen",
        "",
        "A second address and port, only for health, readiness and metrics. It requires no login: for networks that "
        "only operators reach.",
    ),
    Setting(
        "server.admin_hosts",
        "[]",
        "Names by which it may be called (`Host`), besides IP addresses and localhost; without ports.",
    ),
    Setting(
        "server.drain.announce",
        "5s",
        "After SIGTERM, /readyz answers 503 for this time before the gateway stops listening: load balancers notice.",
    ),
    Setting(
        "server.drain.timeout",
        "60s",
        "The time for running calls to end after that; each one left is answered with an error.",
    ),
    Setting("server.origins.console", "http://gateway.localhost:PORT", "The origin of the console and the bridge."),
    Setting("server.origins.apps", "http://{app}.localhost:PORT", "The origin of each app as an ordinary web site."),
    Setting("server.origins.sandbox", "http://sandbox.localhost:PORT", "The origin of the sandbox proxy of views."),
    Setting(
        "server.origins.dedicated",
        "http://{id}.localhost:PORT",
        "The origins of the frames of apps with sandbox: dedicated, one for each app and person, on a domain of their "
        "own that no other site of the gateway shares.",
    ),
    Setting(
        "server.trusted_proxies",
        "[]",
        "Addresses and CIDRs of proxies whose Forwarded and X-Forwarded-For are trusted.",
    ),
    Setting(
        "server.client_header",
        "",
        "The one of the two that these proxies write: forwarded or x-forwarded-for; the other is ignored.",
    ),
    Setting(
        "server.busy_poll",
        "false",
        "Poll for up to 0.2 ms before sleeping, as long as that finds new data: answers come sooner on a machine with "
        "a free core, for more CPU time.",
    ),
    Setting(
        "server.fast_path",
        "true",
        "Read plain requests without the machinery of aiohttp's server; the answers are the same.",
    ),
    Setting(
        "server.http_client",
        "gateway",
        "The HTTP client for backends, issuers, webhooks, collectors and upstreams: gateway (its own, which takes less "
        "CPU time), or aiohttp.",
    ),
    Setting(
        "server.connections",
        "10000",
        "Connections of clients that may be open; fewer if the process may open fewer files.",
    ),
    Setting(
        "server.connections_each",
        "1000",
        "Connections from one address (for IPv6 its first 64 bits); proxies and this machine may have all.",
    ),
    Setting(
        "server.requests_each",
        "1000",
        "Requests of one person that may be in flight, and as many long-lived streams of MCP clients.",
    ),
    Setting("auth", "[none]", "How callers authenticate; the first entry that matches a caller's credentials decides."),
    Setting(
        "auth[].type",
        None,
        "none (on loopback only), token (the gateway's own), oauth, or proxy (a header of an identity proxy).",
    ),
    Setting("auth[].issuer", None, "oauth: the authorization server, as in its metadata and its tokens."),
    Setting(
        "auth[].audience",
        "PUBLIC_URL",
        "oauth: the audience that tokens must have; at /mcp, the URL of the mount is accepted, too.",
    ),
    Setting("auth[].algorithms", "", "oauth: the accepted signature algorithms; by default RS, PS, ES and EdDSA."),
    Setting("auth[].scope", "[]", "oauth: the scopes that a token must have."),
    Setting(
        "auth[].roles_claim", "roles", "oauth: the claim that lists roles; realm_access.roles names a nested claim."
    ),
    Setting("auth[].client_id", "", "oauth: the gateway's client id, with which people log in to the console."),
    Setting("auth[].client_secret", "", "oauth: that client's secret, if it has one: ${env:NAME} or ${file:path}."),
    Setting("auth[].login_scope", "[openid]", "oauth: the scopes that the console's login requests."),
    Setting("auth[].introspection", "false", "oauth: introspect tokens that are not JWTs at the issuer (RFC 7662)."),
    Setting("auth[].skew", "30s", "oauth: the largest accepted difference to the issuer's clock."),
    Setting("auth[].session", "12h", "oauth: the lifetime of a login to the console."),
    Setting(
        "auth[].logout",
        "issuer",
        "oauth: where a logout ends the login: issuer (here and there), or gateway (here only).",
    ),
    Setting(
        "auth[].network", "public", "oauth: the allowed addresses of the issuer: public, private, or a list of CIDRs."
    ),
    Setting(
        "auth[].view_clients",
        "[]",
        "oauth, token: ids of clients (names of tokens) that may also call the tools of views that the same person has "
        "opened in another client, by the handles of these views.",
    ),
    Setting("auth[].authorities", "", "oauth: a file of certificate authorities that are trusted for the issuer, too."),
    Setting("auth[].name", None, "proxy: its name; its persons belong to the issuer proxy:<name>."),
    Setting("auth[].header", None, "proxy: the header that contains the person."),
    Setting("auth[].roles_header", "", "proxy: the header that contains the roles, separated by commas."),
    Setting("auth[].proxies", None, "proxy: the addresses from which these headers are accepted."),
    Setting("hosts", "[]", "Web sites of others whose pages may show views (`<mcp-app>`), such as a company's chat."),
    Setting("hosts[].origin", None, "Its origin, such as https://chat.example.com."),
    Setting("hosts[].apps", None, "The apps that its pages may show, and upstreams, of which they may show every app."),
    Setting("hosts[].name", "", "The name that people see; by default the host of its origin."),
    Setting(
        "hosts[].attest",
        "false",
        "Believe its reports of a person's gestures, as of the console's. Nobody answers an approval on its pages.",
    ),
    Setting("hosts[].issuer", "", "The issuer of its people, one of `auth`; required unless `auth` is none."),
    Setting(
        "hosts[].client_id",
        "",
        "The client id of its back end, which exchanges the tokens of its people for tokens of its pages (RFC 8693).",
    ),
    Setting("hosts[].client_secret", "", "That client's secret: ${env:NAME} or ${file:path}."),
    Setting("hosts[].jwks", "", "Instead of a secret: a file of its public keys (a JWK set), for private_key_jwt."),
    Setting("roles.user", "", "Values of the roles claim that may use apps and MCP; by default everybody may."),
    Setting("roles.approver", "[]", "Values that may answer questions of others; everybody answers their own."),
    Setting("roles.auditor", "[]", "Values that may read the whole record."),
    Setting("roles.admin", "[]", "Values that may do everything except answer for others."),
    Setting(
        "policy.organisation",
        "",
        "A policy file whose denials, questions and limits apply to every app and upstream, in addition to their own "
        "policies.",
    ),
    Setting(
        "apps.<name>.source",
        None,
        "The folder or the HTML file of the web app; or the app of an upstream, or pages that a backend renders, with "
        "these keys:",
    ),
    Setting("apps.<name>.source.upstream", "", "The name of the upstream."),
    Setting("apps.<name>.source.resource", "", "The address of the app at the upstream, such as ui://board/app.html."),
    Setting(
        "apps.<name>.source.tool", "", "The tool with whose result the app is shown; it is called without arguments."
    ),
    Setting(
        "apps.<name>.source.backend",
        "",
        "The backend of the app's policy that renders its pages, such as a Django, Rails, Laravel or Express server.",
    ),
    Setting("apps.<name>.source.start", "/", "The path of the first page at that backend."),
    Setting("apps.<name>.policy", None, "The policy file of the app."),
    Setting(
        "apps.<name>.access.roles",
        "",
        "Roles of which a caller needs one to use the app; for everybody else it does not exist.",
    ),
    Setting(
        "apps.<name>.access.when",
        "",
        "A condition (CEL) over `principal` that must be true of a caller who uses the app, in addition to `roles`.",
    ),
    Setting("apps.<name>.title", "", "The name that people see; by default the id with a capital letter."),
    Setting(
        "apps.<name>.start",
        "/",
        "Where the app begins on its site: a page of its folder, or a path of its router, such as /dashboard/.",
    ),
    Setting("apps.<name>.unproven", "as-model", "How a call without view proof is treated: as-model, or deny."),
    Setting(
        "apps.<name>.permissions",
        "[]",
        "Permissions of the page if it uses them: camera, microphone, geolocation, clipboard-write.",
    ),
    Setting(
        "apps.<name>.storage",
        "page",
        "Where localStorage of views is kept: page (for its lifetime), or gateway (per person, encrypted).",
    ),
    Setting(
        "apps.<name>.sandbox",
        "opaque",
        "The origin of the app's frames in our host: opaque (none), or dedicated (one for each person, for pages that "
        "script their own frames, or start workers).",
    ),
    Setting(
        "apps.<name>.domain",
        "",
        "The dedicated origin that other hosts are asked for (`_meta.ui.domain`), in the form of that host.",
    ),
    Setting(
        "apps.<name>.trust_view_gestures", "false", "Whether a view's own report of a person's gesture is trusted."
    ),
    Setting("apps.<name>.story.title", None, "A demonstration that the console plays at a click: its title."),
    Setting("apps.<name>.story.steps", None, "Its steps, each a mapping with these keys:"),
    Setting("apps.<name>.story.steps[].caption", None, "What people read during the step."),
    Setting("apps.<name>.story.steps[].list", "false", "Whether a model lists the tools."),
    Setting("apps.<name>.story.steps[].tool", "", "The tool that a model calls, by the page's name."),
    Setting("apps.<name>.story.steps[].arguments", "{}", "Its arguments."),
    Setting("apps.<name>.story.steps[].needs", "", "What the person is asked to do while it waits for approval."),
    Setting(
        "apps.<name>.story.steps[].otherwise",
        "",
        "What is shown before an error of the tool; by default, that is the end.",
    ),
    Setting("upstreams.<name>.command", "", "An MCP server as a process: a list of the program and its arguments."),
    Setting("upstreams.<name>.cwd", ".", "The folder in which the command runs."),
    Setting(
        "upstreams.<name>.env", "{}", "Its variables: values, ${env:NAME} or ${file:path}; few others are inherited."
    ),
    Setting(
        "upstreams.<name>.replicas",
        "one",
        "With several nodes: `one` command for all of them, or `each` node its own. It is for a command alone.",
    ),
    Setting("upstreams.<name>.url", "", "An MCP server by Streamable HTTP, in either era of the protocol."),
    Setting("upstreams.<name>.sse", "", "An MCP server by the older HTTP with SSE (2024-11-05)."),
    Setting("upstreams.<name>.websocket", "", "An MCP server by WebSocket: ws:// or wss://."),
    Setting("upstreams.<name>.server", "", "A server of the MCP SDK in this process: module:object."),
    Setting("upstreams.<name>.credential", "", "The credential that is sent with each request to a URL."),
    Setting(
        "upstreams.<name>.network", "public", "The allowed addresses of a URL: public, private, or a list of CIDRs."
    ),
    Setting(
        "upstreams.<name>.authorities",
        "",
        "A file of certificate authorities that are trusted for a URL, in addition to the system's.",
    ),
    Setting(
        "upstreams.<name>.policy", "", "A policy file whose `tools` list the allowed tools; by default all are allowed."
    ),
    Setting("upstreams.<name>.access.roles", "", "The same as for apps: roles of which a caller needs one to use it."),
    Setting("upstreams.<name>.access.when", "", "The same as for apps: a condition that must be true of a caller."),
    Setting("upstreams.<name>.include", "[*]", "Patterns of the names of tools that are offered."),
    Setting("upstreams.<name>.exclude", "[]", "Patterns of the names of tools that are not offered."),
    Setting("upstreams.<name>.prefix", "<name>", "The prefix of its names on /mcp; null for none."),
    Setting("upstreams.<name>.trust", "", "The group of upstreams whose apps may be open together on /mcp."),
    Setting("upstreams.<name>.runtime", "false", "Whether its apps get the view runtime of the gateway."),
    Setting(
        "upstreams.<name>.allow",
        "[]",
        "What its apps may use beyond the content security policy of MCP Apps: `blob-workers` (workers from "
        "`blob:` URLs), `eval` (JavaScript from strings), `wasm` (WebAssembly).",
    ),
    Setting(
        "upstreams.<name>.lazy", "true", "Whether it is started when it is first needed, instead of with the gateway."
    ),
    Setting("upstreams.<name>.start", "30s", "The longest time until it is ready; for a command the default is 2m."),
    Setting("upstreams.<name>.timeout", "60s", "The longest time without a message about a call."),
    Setting("upstreams.<name>.message", "16MiB", "The largest message that it may send."),
    Setting(
        "upstreams.<name>.calls",
        "256",
        "Calls on one connection that may be in flight; one principal gets half of them.",
    ),
    Setting("upstreams.<name>.connections", "16", "Connections that it may have; one principal gets half of them."),
    Setting(
        "credentials.<name>.type",
        None,
        "header, basic, client_credentials, authorization_code, token_exchange, jwt_bearer, or a plugin's.",
    ),
    Setting("credentials.<name>.header", "authorization", "header: the header field that carries the value."),
    Setting("credentials.<name>.prefix", "", "header: text before the value, such as Bearer."),
    Setting("credentials.<name>.value", None, "header: the secret value."),
    Setting("credentials.<name>.username", None, "basic: the user name."),
    Setting("credentials.<name>.password", None, "basic: the password."),
    Setting("credentials.<name>.issuer", None, "The authorization server's URL; its metadata contain the endpoints."),
    Setting("credentials.<name>.token_endpoint", "", "The token endpoint's URL; by default from the metadata."),
    Setting(
        "credentials.<name>.authorization_endpoint",
        "",
        "authorization_code: the URL at which people log in; by default from the metadata.",
    ),
    Setting(
        "credentials.<name>.callback",
        "shared",
        "authorization_code: shared is /oauth/callback, own a separate redirect URI: /oauth/callback/<name>.",
    ),
    Setting(
        "credentials.<name>.revocation_endpoint",
        "",
        "The URL at which tokens are revoked; by default from the metadata.",
    ),
    Setting("credentials.<name>.client_id", None, "The gateway's client id at the authorization server."),
    Setting("credentials.<name>.client_secret", "", "The client's secret."),
    Setting(
        "credentials.<name>.client_auth",
        "",
        "How the client authenticates: client_secret_basic, client_secret_post, private_key_jwt, tls_client_auth, "
        "self_signed_tls_client_auth, none; by default chosen from the keys that are set here and the server's "
        "metadata.",
    ),
    Setting(
        "credentials.<name>.private_key",
        "",
        "A private key in PEM, for private_key_jwt, or for the assertions of jwt_bearer.",
    ),
    Setting("credentials.<name>.key_id", "", "The `kid` of private_key."),
    Setting("credentials.<name>.algorithm", "", "The algorithm of private_key; by default the usual one for its kind."),
    Setting("credentials.<name>.certificate", "", "The file of a client certificate, for tls_client_auth."),
    Setting("credentials.<name>.certificate_key", "", "The file of its key; by default the same file."),
    Setting(
        "credentials.<name>.authorities",
        "",
        "A file of certificate authorities that are trusted for this server, in addition to the system's.",
    ),
    Setting("credentials.<name>.scope", "[]", "The scopes to request."),
    Setting("credentials.<name>.resource", "", "The resource for which tokens are requested (RFC 8707)."),
    Setting(
        "credentials.<name>.dpop",
        "false",
        "Whether tokens are bound to a key, and each request proves possession of it (RFC 9449).",
    ),
    Setting(
        "credentials.<name>.title",
        "",
        "authorization_code: the name of the service for people; by default the name of the credential.",
    ),
    Setting(
        "credentials.<name>.subject",
        "",
        "token_exchange: the credential whose token is exchanged; jwt_bearer: the subject of the assertion.",
    ),
    Setting("credentials.<name>.actor", "", "token_exchange: the credential that acts for the subject."),
    Setting(
        "credentials.<name>.audience",
        "",
        "token_exchange: the audience of the token; jwt_bearer: `aud` of the assertion, by default the issuer.",
    ),
    Setting(
        "credentials.<name>.subject_token_type",
        "access_token",
        "token_exchange: the token of the subject that is exchanged: access_token, or id_token.",
    ),
    Setting(
        "credentials.<name>.requested_token_type",
        "",
        "token_exchange: access_token, id_token, jwt or id-jag; by default the server decides.",
    ),
    Setting(
        "credentials.<name>.subject_claim",
        "",
        "jwt_bearer: the claim of the caller that becomes the subject of the assertion, such as sub or email.",
    ),
    Setting("credentials.<name>.assertion", "", "jwt_bearer: a credential whose token is the assertion."),
    Setting(
        "credentials.<name>.network",
        "public",
        "The allowed addresses of the server: public, private, or a list of CIDRs.",
    ),
    Setting("log", "text", "The format of the log: text, or json, one object per line."),
    Setting(
        "access_log",
        "false",
        "Whether each request is logged: one JSON object per line on standard error, without query and secrets.",
    ),
    Setting(
        "stores.database",
        "sqlite:///gateway.db",
        "sqlite:///path or postgresql://…; use ${env:…} if it contains a password.",
    ),
    Setting(
        "stores.redis",
        "",
        "redis://… or rediss://… of a Redis 7 or Valkey that several gateways share; use ${env:…} if it contains a "
        "password.",
    ),
    Setting("stores.journal", "gateway.journal", "The file to which the record is written first."),
    Setting(
        "stores.encryption_key",
        "${file:gateway.key}",
        "The key of stored tokens: ${env:NAME}, ${file:path} (created if missing), or keyring.",
    ),
    Setting(
        "cluster.listen",
        "",
        "With several processes as one gateway: where this one listens for the others, host:port with tls, or "
        "unix:path (below the state folder) if all are on this machine. `serve --workers` needs none.",
    ),
    Setting(
        "cluster.address", "cluster.listen", "The address at which the others reach it; {name} stands for cluster.name."
    ),
    Setting("cluster.name", "the host's name", "The name of this process, which no other one may have at a time."),
    Setting(
        "cluster.keys",
        None,
        "The keys of all processes, the newest first: ${env:NAME} or ${file:path}, each 32 bytes in base64.",
    ),
    Setting("cluster.tls.certificate", None, "The certificate of this process with its chain, a PEM file."),
    Setting("cluster.tls.key", None, "The private key of the certificate, a PEM file."),
    Setting("cluster.tls.authority", None, "The authority of the certificates of all processes, a PEM file."),
    Setting(
        "approvals.ask", "[console, elicitation, cli]", "The ways to ask people; webhook and plugin are possible, too."
    ),
    Setting("approvals.timeout", "2m", "How long a question to a person stays open."),
    Setting(
        "approvals.presence", "none", "What an approval requires besides a click: none, or webauthn, a security key."
    ),
    Setting("approvals.interactive", "[]", "Ids of clients that may ask for a typed code instead of opening the page."),
    Setting("approvals.webhook.url", "", "The URL to which questions are sent, such as that of a chat bot."),
    Setting(
        "approvals.webhook.secret",
        "",
        "The secret that signs questions, 32 characters or more: ${env:NAME} or ${file:path}.",
    ),
    Setting("approvals.webhook.answers", "false", "Whether signed answers are accepted."),
    Setting(
        "approvals.webhook.network", "public", "The allowed addresses of the URL: public, private, or a list of CIDRs."
    ),
    Setting(
        "approvals.webhook.authorities", "", "A file of certificate authorities that are trusted for the URL, too."
    ),
    Setting(
        "audit.on_failure",
        "refuse-unsafe",
        "If the record cannot be written: refuse-unsafe methods, refuse all, or continue.",
    ),
    Setting("audit.redact", "[]", "JSON paths of values that must not be recorded: $.password, $..token."),
    Setting("audit.sinks", "[database]", "Where the record is copied from the journal: database, otlp."),
    Setting("audit.retain", "", "How long values are kept, such as 90d; by default for ever. The chain stays."),
    Setting(
        "audit.fsync", "never", "Whether each line waits for the disk; always survives a loss of power, but is slower."
    ),
    Setting(
        "audit.refusals",
        "120",
        "Refusals of one caller in a minute that have separate lines in the record; one more line counts the rest.",
    ),
    Setting("audit.key", "", "The signing key, 32 bytes in base64: ${env:…}; by default a file beside the journal."),
    Setting("audit.rotate.size", "1GB", "The size after which the journal continues in a new file."),
    Setting("audit.rotate.every", "", "The time after which it does so as well, such as 1d."),
    Setting("mcp.fast_path", "true", "Serve usual requests of apps and calls of upstreams without the MCP SDK."),
    Setting("mcp.sessions", "10000", "Sessions of handshake protocols that may be open at once, in each mount."),
    Setting("mcp.sessions_each", "1000", "Such sessions that one caller may have open in one mount."),
    Setting("mcp.session_idle", "30m", "The time without a request after which such a session ends."),
    Setting(
        "mcp.views_each",
        "32",
        "Live views of one principal. A lost or unproven view, or one in another host that was silent for five "
        "minutes, is closed for a new one.",
    ),
    Setting(
        "mcp.bodies",
        "1GiB",
        "Bytes of large bodies of requests and of the bridge that may be in memory, and as many of answers.",
    ),
    Setting("mcp.bodies_each", "256MiB", "Such bytes of one caller."),
    Setting("telemetry.otlp", "", "The OTLP/HTTP collector to which traces are sent, such as http://127.0.0.1:4318."),
    Setting("telemetry.authorization", "", "The collector's Authorization header: ${env:NAME} or ${file:path}."),
    Setting(
        "telemetry.network", "private", "The allowed addresses of the collector: public, private, or a list of CIDRs."
    ),
    Setting("telemetry.authorities", "", "A file of certificate authorities that are trusted for the collector, too."),
    Setting("plugins", "[]", "Modules, or .py files; only those named here are loaded."),
)
"""In the order of the file."""

DEFAULTS: Final = {setting.key: setting.default or "" for setting in SETTINGS}
