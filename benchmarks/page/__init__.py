"""Measures a page in a view: the latency of its fetches, and the delay that large bodies cause for others."""
