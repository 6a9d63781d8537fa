"""Learns routes from an API's description or from recorded requests of people: proposals for review."""
