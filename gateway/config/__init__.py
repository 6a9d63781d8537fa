"""Loads gateway.yaml and the environment into one frozen Config, and reports all problems at once."""

from gateway.config.approvals import Approvals, Presence, Way, Webhook
from gateway.config.audit import Audit, SinkName, Telemetry
from gateway.config.load import Reading, app_id_problem, load_config, read_config
from gateway.config.notices import Kind, Notice, Notices
from gateway.config.nouns import App, Config, EncryptionKey, Origins, Server, Storage, Unproven, UpstreamApp
from gateway.config.places import Places, record_places
from gateway.config.restart import restart_problems, same_connection, same_upstream
from gateway.config.settings import SETTINGS, Setting
from gateway.config.sources import watched
from gateway.config.upstreams import Upstream
from gateway.config.watch import Watch

__all__ = [
    "SETTINGS",
    "App",
    "Approvals",
    "Audit",
    "Config",
    "EncryptionKey",
    "Kind",
    "Notice",
    "Notices",
    "Origins",
    "Places",
    "Presence",
    "Reading",
    "Server",
    "Setting",
    "SinkName",
    "Storage",
    "Telemetry",
    "Unproven",
    "Upstream",
    "UpstreamApp",
    "Watch",
    "Way",
    "Webhook",
    "app_id_problem",
    "load_config",
    "read_config",
    "record_places",
    "restart_problems",
    "same_connection",
    "same_upstream",
    "watched",
]
