"""The bridge: the WebSocket of a host page and the large bodies beside it."""
