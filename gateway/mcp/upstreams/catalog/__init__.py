"""The tools, resources and prompts that upstreams list, as their clients see them."""
