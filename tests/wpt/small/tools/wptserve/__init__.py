"""A substitute for the server of web-platform-tests."""
