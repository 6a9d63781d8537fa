"""Backends: every outgoing connection of the gateway is made here."""
