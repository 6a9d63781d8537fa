"""gateway.yaml and the environment become one frozen Config; what is wrong in it or its policies is named at once."""

from gateway.config.load import app_id_problem, load_config
from gateway.config.nouns import App, Approvals, Audit, Config, Origins, Server, Unproven
from gateway.config.settings import SETTINGS, Setting

__all__ = [
    "SETTINGS",
    "App",
    "Approvals",
    "Audit",
    "Config",
    "Origins",
    "Server",
    "Setting",
    "Unproven",
    "app_id_problem",
    "load_config",
]
