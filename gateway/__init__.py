"""webmcp-gateway lets a normal web app run as an MCP App, under a policy."""

__version__ = "0.1.0.dev0"
