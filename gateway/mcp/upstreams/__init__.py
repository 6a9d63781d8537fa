"""MCP servers behind the gateway: their connections, their mounts, and their share of `/mcp`."""
