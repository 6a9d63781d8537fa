"""The tables of the database, and the migrations of older versions."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    inspect,
    literal,
    select,
    text,
)

log = logging.getLogger(__name__)

METADATA: Final = MetaData()

SCHEMA_VERSION: Final = Table(
    "schema_version", METADATA, Column("version", Integer, nullable=False), Column("oldest", Integer)
)
"""The version of the tables, and the oldest version whose gateways can use them (NULL: only `version` itself).

Versions change tables in two steps, as long as gateways of the version before may run beside: one adds what is new,
and a later one removes what no gateway uses any more.
"""

AUDIT: Final = Table(
    "audit",
    METADATA,
    Column("writer", String, primary_key=True),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("chain", String, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("id", String, nullable=False),
    Column("phase", String, nullable=False),
    Column("opens", Boolean, nullable=False),
    Column("time", Float, nullable=False),
    Column("app", String),
    Column("principal", String),
    Column("view", String),
    Column("door", String),
    Column("initiator", String),
    Column("decision", String),
    Column("reason", String),
    Column("status", Integer),
    Column("trace", String),
    Column("client", String),
    Column("line", Text, nullable=False),
    Index("audit_id", "id"),
    Index("audit_chain", "chain", "position"),
    Index("audit_newest", "opens", "time", "writer", "seq"),
    Index("audit_newest_of_app", "opens", "app", "time", "writer", "seq"),
    Index("audit_trace", "trace"),
)
"""The lines of all journals: `line` is the journal's text, `position` the offset behind it.

`opens` marks the first line of an id, for paging. The other columns are copies of fields, for queries.
"""

FILLED: Final = Table(
    "audit_filled",
    METADATA,
    Column("chain", String, primary_key=True),
    Column("offset", BigInteger, nullable=False),
    Column("hash", String, nullable=False),
)
"""The progress of each journal, identified by its first writer: the offset behind a line, and that line's hash."""

FILLERS: Final = Table(
    "audit_fillers",
    METADATA,
    Column("chain", String, primary_key=True),
    Column("epoch", BigInteger, nullable=False),
)
"""The fencing token of each journal: a filler with an older one was superseded, and stores nothing."""

QUOTAS: Final = Table(
    "quotas",
    METADATA,
    Column("bucket", String, primary_key=True),
    Column("used", BigInteger, nullable=False),
    Column("ends", Float, nullable=False),
    Column("owner", String),
    Index("quotas_ends", "ends"),
    Index("quotas_owner", "owner"),
)
"""The usage of each quota in the window that ends at `ends`, in seconds since the epoch.

`owner` is the principal of the view that has the quota.
"""

IDEMPOTENCY_KEYS: Final = Table(
    "idempotency_keys",
    METADATA,
    Column("key", String, primary_key=True),
    Column("owner", String, nullable=False),
    Column("digest", String, nullable=False),
    Column("expires", Float, nullable=False),
    Index("idempotency_keys_expires", "expires"),
    Index("idempotency_keys_owner", "owner", "expires"),
)
"""The idempotency keys that were sent: hashes, with the digest of the request that each belongs to."""

SECRETS: Final = Table(
    "secrets",
    METADATA,
    Column("name", String, primary_key=True),
    Column("value", LargeBinary, nullable=False),
)
"""Random values that all processes of a gateway share."""

TOKENS: Final = Table(
    "credential_tokens",
    METADATA,
    Column("credential", String, primary_key=True),
    Column("principal", String, primary_key=True),
    Column("version", String, nullable=False),
    Column("key", String, nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    Column("changed", Float, nullable=False),
)
"""Tokens of credentials, sealed with the key `key`; a shared credential has the empty principal."""

LEASES: Final = Table(
    "credential_leases",
    METADATA,
    Column("credential", String, primary_key=True),
    Column("principal", String, primary_key=True),
    Column("holder", String, nullable=False),
    Column("until", Float, nullable=False),
)
"""The leases for renewing tokens: one holder at a time."""

CONNECTS: Final = Table(
    "credential_connects",
    METADATA,
    Column("state", String, primary_key=True),
    Column("key", String, nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    Column("expires", Float, nullable=False),
)
"""Pending logins at authorization servers, sealed; each can be taken once."""

ISSUED: Final = Table(
    "issued_tokens",
    METADATA,
    Column("id", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("digest", LargeBinary, nullable=False),
    Column("capabilities", String, nullable=False),
    Column("person", String),
    Column("created", Float, nullable=False),
    Column("expires", Float, nullable=False),
    Column("revoked", Float),
    Column("mac", String),
    Index("issued_tokens_name", "name"),
)
"""Tokens that the gateway issued: hashes, with the capabilities of each, separated by spaces.

`mac` is the signature of a gateway of several processes; NULL otherwise.
"""

SESSIONS: Final = Table(
    "sessions",
    METADATA,
    Column("key", String, primary_key=True),
    Column("kind", String, nullable=False),
    Column("family", String, nullable=False),
    Column("value", Text, nullable=False),
    Column("expires", Float, nullable=False),
    Column("owner", String),
    Column("created", Float),
    Index("sessions_family", "family"),
    Index("sessions_owner", "owner"),
    Index("sessions_expires", "expires"),
)
"""Logins of people, and the codes that lead to one: `key` is a hash; rows with the same `family` end together.

Rows of one kind and `owner` are bounded: the logins of a person, and the codes and site sessions of a login.
"""

TOUCH_KEYS: Final = Table(
    "touch_keys",
    METADATA,
    Column("id", String, primary_key=True),
    Column("person", String, nullable=False),
    Column("name", String, nullable=False),
    Column("public", LargeBinary, nullable=False),
    Column("count", BigInteger, nullable=False),
    Column("created", Float, nullable=False),
    Column("mac", String),
    Index("touch_keys_person", "person"),
)
"""The security keys that people touch to approve: public keys, and their signature counters.

`mac` is the signature of a gateway of several processes; NULL otherwise.
"""

PAGE_STORAGE: Final = Table(
    "page_storage",
    METADATA,
    Column("person", String, primary_key=True),
    Column("app", String, primary_key=True),
    Column("version", BigInteger, nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("key", String, nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    Column("changed", Float, nullable=False),
)
"""The `localStorage` of apps' pages by person, sealed with the key `key`; `size` is in characters."""


UPSTREAM_TOOLS: Final = Table(
    "upstream_tools",
    METADATA,
    Column("upstream", String, primary_key=True),
    Column("tool", String, primary_key=True),
    Column("accepted", String, nullable=False),
    Column("latest", String, nullable=False),
)
"""Digests of upstreams' tools, in the form of a policy's `pin`: as accepted, and the latest.

`tool` is a hash of the name, which may have any characters. Of prompts and resources, only names and URIs are stored,
under the upstream's name with the method that lists them.
"""

TAINTS: Final = Table(
    "taints",
    METADATA,
    Column("principal", String, primary_key=True),
    Column("app", String, primary_key=True),
    Column("evidence", String, nullable=False),
    Column("call", String),
)
"""The apps of principals whose views are tainted, until a person acts in one of them."""

MCP_SESSIONS: Final = Table(
    "mcp_sessions",
    METADATA,
    Column("key", String, primary_key=True),
    Column("principal", String, nullable=False),
    Column("mount", String, nullable=False),
    Column("proof", String, nullable=False),
    Column("owner", String, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("seal", String, nullable=False),
    Column("state", LargeBinary, nullable=False),
    Column("expires", Float, nullable=False),
    Index("mcp_sessions_of", "mount", "principal"),
    Index("mcp_sessions_proof", "proof"),
    Index("mcp_sessions_expires", "expires"),
)
"""The sessions of MCP clients with a handshake: `key` is the hash of the id, `owner` the process that runs it.

`epoch` counts its owners. `state` is sealed with the key `seal`, for this key, principal and mount. `proof` is the
credential that opened it: the session ends with a logout or a revocation of that.
"""

LAUNCHES: Final = Table(
    "launches",
    METADATA,
    Column("key", String, primary_key=True),
    Column("view", String, nullable=False),
    Column("principal", String, nullable=False),
    Column("app", String, nullable=False),
    Column("attached", BigInteger, nullable=False),
    Column("seal", String, nullable=False),
    Column("state", LargeBinary, nullable=False),
    Column("created", Float, nullable=False),
    Column("expires", Float, nullable=False),
    Index("launches_view", "view"),
    Index("launches_principal", "principal", "created"),
    Index("launches_expires", "expires"),
)
"""Launch values: `key` is a hash, `attached` counts the pages that have attached.

`state` is sealed with the key `seal`, for this key, view, principal and app.
"""

APPROVALS: Final = Table(
    "approvals",
    METADATA,
    Column("id", String, primary_key=True),
    Column("principal", String, nullable=False),
    Column("app", String, nullable=False),
    Column("view", String),
    Column("call", String, nullable=False),
    Column("state", String, nullable=False),
    Column("owner", String, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("wanted", String),
    Column("answer", Text),
    Column("handover", String),
    Column("created", Float, nullable=False),
    Column("expires", Float, nullable=False),
    Column("seen", Float, nullable=False),
    Column("ended", Float),
    Column("seal", String, nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    Index("approvals_principal", "principal", "state"),
    Index("approvals_state", "state", "seen"),
)
"""The questions to persons. Times are of the database's clock; `seen` is when `owner` last renewed its lease.

`call` is a hash that identical calls of one view share. `answer` names who answered, with a signature for this
question; `wanted` is the process at which the call was repeated, and `handover` the former owner's signature that the
call is that process's now. `sealed` is the question, for this id.
"""

APPROVAL_RATES: Final = Table(
    "approval_rates",
    METADATA,
    Column("principal", String, primary_key=True),
    Column("tat", Float, nullable=False),
    Index("approval_rates_tat", "tat"),
)
"""The token buckets of principals' new questions, by their theoretical arrival time (GCRA)."""

GRANTS: Final = Table(
    "grants",
    METADATA,
    Column("id", String, primary_key=True),
    Column("principal", String, nullable=False),
    Column("call", String, nullable=False),
    Column("created", Float, nullable=False),
    Column("expires", Float, nullable=False),
    Column("seal", String, nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    Index("grants_call", "call"),
    Index("grants_principal", "principal", "created"),
    Index("grants_expires", "expires"),
)
"""The grants of persons: `call` is a hash of principal, app, rule and policy version.

`sealed` is the grant, for this id.
"""

ONE_TIME: Final = Table(
    "one_time_values",
    METADATA,
    Column("key", String, primary_key=True),
    Column("kind", String, nullable=False),
    Column("owner", String, nullable=False),
    Column("created", Float, nullable=False),
    Column("expires", Float, nullable=False),
    Column("seal", String, nullable=False),
    Column("sealed", LargeBinary, nullable=False),
    Index("one_time_values_of", "kind", "owner"),
    Index("one_time_values_expires", "expires"),
)
"""Values that are used once, such as tickets and challenges: `key` is a hash; `sealed` is the value, for this key."""

APPROVED_VERSIONS: Final = Table(
    "approved_versions",
    METADATA,
    Column("app", String, primary_key=True),
    Column("version", String, nullable=False),
    Column("mac", String, nullable=False),
)
"""The version of each app's policy and access that a person has approved last, with a signature of both columns."""

NODES: Final = Table(
    "nodes",
    METADATA,
    Column("incarnation", String, primary_key=True),
    Column("name", String, nullable=False),
    Column("address", String, nullable=False),
    Column("version", String, nullable=False),
    Column("digest", String, nullable=False),
    Column("keys", String, nullable=False),
    Column("policies", Text, nullable=False),
    Column("started", Float, nullable=False),
    Column("renewed", Float, nullable=False),
    Column("draining", Boolean, nullable=False),
    Column("proof", String, nullable=False),
    Column("owns", Text),
)
"""The processes of a gateway of several: a row for each start. `renewed` is the lease, on the database's clock.

`proof` is a signature of what the node announces, which is all but its lease, whether it is `draining`, and how much
it `owns` (JSON).
"""

VIEW_OWNERS: Final = Table(
    "view_owners",
    METADATA,
    Column("view", String, primary_key=True),
    Column("owner", String, nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("former", String),
    Column("changed", Float, nullable=False),
    Index("view_owners_former", "former"),
)
"""The nodes that have views now, where their ids do not say it; and notices for the node `former` that it has a view no
more, whose key is the view with the node. A notice is deleted when that node has received it.
"""

UPSTREAM_OWNERS: Final = Table(
    "upstream_owners",
    METADATA,
    Column("upstream", String, primary_key=True),
    Column("owner", String, nullable=False),
)
"""The nodes that run the processes of upstreams of which there is one for all nodes."""

COOKIE_JARS: Final = Table(
    "cookie_jars",
    METADATA,
    Column("key", String, primary_key=True),
    Column("principal", String, nullable=False),
    Column("person", String, nullable=False),
    Column("credential", String, nullable=False),
    Column("used", Float, nullable=False),
    Column("seal", String, nullable=False),
    Column("state", LargeBinary, nullable=False),
    Index("cookie_jars_principal", "principal", "used"),
    Index("cookie_jars_person", "person"),
    Index("cookie_jars_used", "used"),
)
"""The cookies of backends, by caller: `key` is a hash of what the jar is for; `state` are its cookies, sealed for it.

`used` is in seconds since the epoch, on the database's clock.
"""


def version_of(connection: Connection) -> int:
    """Return the version of the tables, 0 for an empty database. Raises ValueError if this gateway is too old."""
    version, oldest = _versions(connection)
    if version > len(MIGRATIONS) < oldest:
        raise ValueError(
            f"it has version {version}, and this gateway knows up to {len(MIGRATIONS)}: run the newer gateway that has "
            "migrated it, or restore the backup from before (`webmcp-gateway storage restore`)"
        )
    return version


def _versions(connection: Connection) -> tuple[int, int]:
    if not inspect(connection).has_table(SCHEMA_VERSION.name):
        return 0, 0
    known = {column["name"] for column in inspect(connection).get_columns(SCHEMA_VERSION.name)}
    version = connection.execute(select(SCHEMA_VERSION.c.version)).scalar() or 0
    oldest = connection.execute(select(SCHEMA_VERSION.c.oldest)).scalar() if "oldest" in known else None
    return version, version if oldest is None else oldest


def migrate(connection: Connection) -> None:
    """Migrate the database to this version, in the transaction of `connection`. Raises ValueError if it is too new.

    A newer database that gateways of this version can use is left as it is.
    """
    version = version_of(connection)
    for step in MIGRATIONS[version:]:
        step(connection)
    if version < len(MIGRATIONS):
        connection.execute(SCHEMA_VERSION.delete())
        connection.execute(SCHEMA_VERSION.insert().values(version=len(MIGRATIONS), oldest=OLDEST))


def _audit_anew(connection: Connection) -> None:
    """Create the tables with a new line format, which the journal fills.

    The old lines are kept under another name: their journal may have been moved away.
    """
    for table in (AUDIT, FILLED):
        if not inspect(connection).has_table(table.name):
            continue
        if connection.execute(select(literal(1)).select_from(table).limit(1)).first() is None:
            table.drop(connection)
            continue
        old_name = f"{table.name}_before_4"
        for index in inspect(connection).get_indexes(table.name):
            connection.execute(text(f"DROP INDEX {index['name']}"))
        connection.execute(text(f"ALTER TABLE {table.name} RENAME TO {old_name}"))
        if connection.dialect.name == "postgresql":
            connection.execute(text(f"ALTER INDEX IF EXISTS {table.name}_pkey RENAME TO {old_name}_pkey"))
        log.warning("the record's old lines are kept in the table %s: no version of the gateway reads them", old_name)
    METADATA.create_all(connection, [AUDIT, FILLED])


def _add(column: Column[Any]) -> Callable[[Connection], None]:
    """Return a migration that adds a column, unless the table has it already; old rows have no value."""

    def step(connection: Connection) -> None:
        if column.name not in {known["name"] for known in inspect(connection).get_columns(column.table.name)}:
            kind = column.type.compile(connection.dialect)
            connection.execute(text(f"ALTER TABLE {column.table.name} ADD COLUMN {column.name} {kind}"))

    return step


def _index(table: Table, name: str) -> Callable[[Connection], None]:
    """An index of a column that came later."""
    index = next(index for index in table.indexes if index.name == name)
    return lambda connection: index.create(connection, checkfirst=True)


def _create(*tables: Table) -> Callable[[Connection], None]:
    def step(connection: Connection) -> None:
        METADATA.create_all(connection, tables)

    return step


MIGRATIONS: Final[tuple[Callable[[Connection], None], ...]] = (
    _create(SCHEMA_VERSION, AUDIT, FILLED),
    _create(QUOTAS),
    _create(IDEMPOTENCY_KEYS, SECRETS),
    _audit_anew,
    _create(TOKENS, LEASES, CONNECTS),
    _create(ISSUED, SESSIONS),
    _create(TOUCH_KEYS),
    _create(PAGE_STORAGE),
    _create(UPSTREAM_TOOLS),
    _create(FILLERS),
    _create(TAINTS),
    _add(AUDIT.c.client),
    _add(QUOTAS.c.owner),
    _index(QUOTAS, "quotas_owner"),
    _add(SESSIONS.c.owner),
    _add(SESSIONS.c.created),
    _index(SESSIONS, "sessions_owner"),
    _create(MCP_SESSIONS),
    _create(LAUNCHES),
    _add(SCHEMA_VERSION.c.oldest),
    _create(APPROVALS, APPROVAL_RATES, GRANTS),
    _add(ISSUED.c.mac),
    _add(TOUCH_KEYS.c.mac),
    _create(ONE_TIME),
    _create(APPROVED_VERSIONS),
    _create(NODES, VIEW_OWNERS),
    _add(NODES.c.owns),
    _create(COOKIE_JARS),
    _create(UPSTREAM_OWNERS),
)
"""The migration from each version n to n + 1, beginning with an empty database.

Each must do nothing when it runs again, since SQLite commits before the version is written.
"""

OLDEST: Final = 18
"""The oldest version whose gateways can use the tables as they are now: raise it with a step that takes away."""
