"""webmcp-gateway lets a normal web app run as an MCP App, under a policy."""
