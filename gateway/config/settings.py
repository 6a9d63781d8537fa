"""Every setting of gateway.yaml, once, with its default and one line of help."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of gateway.yaml. `<name>` in `key` is a name of the writer's own, `[]` an item of a list.

    `default` is what the file would say; None where the key must be given. `PORT` in it is the port of `server.listen`.
    """

    key: str
    default: str | None
    help: str


SETTINGS: Final = (
    Setting(
        "server.listen", "127.0.0.1:8080", "Address and port; only loopback as long as there is no authentication."
    ),
    Setting("server.public_url", "http://localhost:PORT", "Where MCP clients reach the gateway; its /mcp is below."),
    Setting("server.origins.console", "http://gateway.localhost:PORT", "The origin of the console and the bridge."),
    Setting("server.origins.apps", "http://{app}.localhost:PORT", "The origin of each app as an ordinary web site."),
    Setting("server.origins.sandbox", "http://sandbox.localhost:PORT", "The origin of the sandbox proxy of views."),
    Setting("auth", "[none]", "How callers prove who they are; the first that matches counts."),
    Setting("apps.<name>.source", None, "The folder or the HTML file of the web app."),
    Setting("apps.<name>.policy", None, "The policy file of the app."),
    Setting("apps.<name>.title", "", "The name that people see; left out, the id with a capital letter."),
    Setting("apps.<name>.unproven", "as-model", "What a call without view proof is worth: as-model, or deny."),
    Setting("apps.<name>.trust_view_gestures", "false", "Whether the view's own word on a person's gesture is taken."),
    Setting("credentials.<name>.type", None, "How the credential is got: client_credentials."),
    Setting("credentials.<name>.issuer", None, "The authorization server's URL; its metadata name the token endpoint."),
    Setting("credentials.<name>.token_endpoint", "", "The token endpoint's URL; left out, it is looked up."),
    Setting("credentials.<name>.client_id", None, "The gateway's client id at the authorization server."),
    Setting("credentials.<name>.client_secret", None, "The client's secret: ${env:NAME} or ${file:path}."),
    Setting("credentials.<name>.scope", "[]", "The scopes to ask for."),
    Setting("credentials.<name>.network", "public", "Where the server may be: public, private, or a list of CIDRs."),
    Setting("log", "text", "How the log is written: text, or json, one object per line."),
    Setting(
        "stores.database", "sqlite:///gateway.db", "sqlite:///path or postgresql://…; ${env:…} if it has a password."
    ),
    Setting("stores.journal", "gateway.journal", "The file to which the record is written first."),
    Setting("approvals.timeout", "2m", "How long a question to a person stays open."),
    Setting("audit.on_failure", "refuse-unsafe", "Without a record: refuse-unsafe methods, refuse all, or continue."),
    Setting("audit.redact", "[]", "What the record must not hold, as JSON paths: $.password, $..token."),
    Setting("mcp.fast_path", "true", "Carry an app's requests past the MCP SDK where nothing about them is unusual."),
    Setting("mcp.sessions", "10000", "Sessions of older MCP protocols that may be open at once, in each mount."),
    Setting("mcp.session_idle", "30m", "After how long without a request such a session ends."),
    Setting("audit.sinks", "[database]", "Where the record goes beside the journal: database, otlp."),
    Setting("audit.retain", "", "How long values are kept, such as 90d; left out, for ever. The chain stays."),
    Setting(
        "audit.fsync", "never", "Whether each line waits for the disk: always survives a loss of power, and costs."
    ),
    Setting("audit.key", "", "The signing key, 32 bytes in base64: ${env:…}; left out, a file beside the journal."),
    Setting("audit.rotate.size", "1GB", "After how many bytes the journal goes on in a new file."),
    Setting("audit.rotate.every", "", "After what time it does so as well, such as 1d."),
    Setting("telemetry.otlp", "", "Traces go to this OTLP/HTTP collector, such as http://127.0.0.1:4318."),
    Setting("telemetry.authorization", "", "The collector's Authorization header: ${env:NAME} or ${file:path}."),
    Setting("telemetry.network", "private", "Where the collector may be: public, private, or a list of CIDRs."),
    Setting("plugins", "[]", "Modules, or .py files; only what is named here is loaded."),
)
"""In the order of the file."""

DEFAULTS: Final = {setting.key: setting.default or "" for setting in SETTINGS}

UNAVAILABLE: Final = {
    "": ("hosts", "roles", "upstreams"),
    "server": ("trusted_proxies",),
    "stores": ("redis",),
    "approvals": ("ask", "presence"),
}
"""Keys that are planned and do not work yet, by their section."""
