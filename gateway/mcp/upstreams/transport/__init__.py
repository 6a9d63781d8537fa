"""Connections to upstreams, whatever carries them."""
