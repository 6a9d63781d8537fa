"""The ways to a backend: every connection that leaves the gateway is made here."""
