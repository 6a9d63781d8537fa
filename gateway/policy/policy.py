"""A policy, compiled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gateway.policy.routes import Routes
from gateway.policy.rules import BackendSpec, Obligations, PolicyTest, ToolRule


@dataclass(frozen=True, slots=True)
class Policy:
    """What one file says. `version` is the first 16 hex digits of its SHA-256; `defaults` holds for every route.

    `origins` maps the origins of absolute URLs to backends; `only_backend` is set where there is exactly one.
    """

    file: str
    version: str
    backends: Mapping[str, BackendSpec]
    routes: Routes
    tools: Mapping[str, ToolRule]
    tests: tuple[PolicyTest, ...]
    defaults: Obligations
    origins: Mapping[str, str]
    only_backend: str | None
