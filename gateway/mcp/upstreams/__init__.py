"""MCP servers behind the gateway: their connections, their mounts, and what of them stands on `/mcp`."""
