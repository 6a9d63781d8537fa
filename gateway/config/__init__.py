"""Loads gateway.yaml and the environment into one frozen Config, and reports all problems at once."""

from gateway.config.approvals import ApprovalSettings, ApprovalWay, PresenceCheck, Webhook
from gateway.config.audit import Audit, Places, SinkName, Telemetry, record_places
from gateway.config.cluster import ClusterSettings, NodeAddress, NodeTls
from gateway.config.load import Reading, app_id_problem, load_config, read_config
from gateway.config.locations import state_folder
from gateway.config.notices import (
    Notice,
    NoticeKind,
    Notices,
    active_reports,
    comparable,
    live_changes,
    place_of,
    restart_keys,
    restart_problems,
    same_connection,
    same_upstream,
    with_running,
)
from gateway.config.settings import SETTINGS, Setting
from gateway.config.upstreams import UpstreamSettings
from gateway.config.values import (
    App,
    BackendApp,
    Config,
    EncryptionKey,
    Origins,
    SandboxKind,
    ServerSettings,
    StorageKind,
    Unproven,
    UpstreamApp,
)
from gateway.config.watch import Watch, configured_files

__all__ = [
    "SETTINGS",
    "App",
    "ApprovalSettings",
    "ApprovalWay",
    "Audit",
    "BackendApp",
    "ClusterSettings",
    "Config",
    "EncryptionKey",
    "NodeAddress",
    "NodeTls",
    "Notice",
    "NoticeKind",
    "Notices",
    "Origins",
    "Places",
    "PresenceCheck",
    "Reading",
    "SandboxKind",
    "ServerSettings",
    "Setting",
    "SinkName",
    "StorageKind",
    "Telemetry",
    "Unproven",
    "UpstreamApp",
    "UpstreamSettings",
    "Watch",
    "Webhook",
    "active_reports",
    "app_id_problem",
    "comparable",
    "configured_files",
    "live_changes",
    "load_config",
    "place_of",
    "read_config",
    "record_places",
    "restart_keys",
    "restart_problems",
    "same_connection",
    "same_upstream",
    "state_folder",
    "with_running",
]
