"""What the relay costs, in hosts that know nothing but `tools/call`: the model's calls, and the page's own requests."""
