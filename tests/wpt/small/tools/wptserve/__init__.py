"""Stands in for the server of web-platform-tests."""
