"""Measures the relay, in hosts that support only `tools/call`: the model's calls, and the page's own requests."""
