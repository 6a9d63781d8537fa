"""Stands in for the program that starts that server."""
