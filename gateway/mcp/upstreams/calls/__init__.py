"""Calls of clients, carried to an upstream under its policy."""
