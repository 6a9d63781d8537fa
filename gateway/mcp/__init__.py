"""The gateway as an MCP server: its tools and resources, its two protocol eras, and the ui channel of a view."""

from gateway.mcp.catalog import Catalog as Catalog
from gateway.mcp.mount_interfaces import MountClient as MountClient
from gateway.mcp.mount_interfaces import PackedApp as PackedApp
from gateway.mcp.server import McpMount as McpMount
from gateway.mcp.view_server import UiPeer as UiPeer
