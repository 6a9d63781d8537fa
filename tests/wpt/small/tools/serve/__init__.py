"""A substitute for the program that starts that server."""
