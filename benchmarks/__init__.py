"""Measures the cost of the gateway, compared with a bare proxy and the MCP SDK."""
