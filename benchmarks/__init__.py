"""What the gateway costs, beside a bare proxy and the MCP SDK's own way."""
