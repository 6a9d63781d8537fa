"""A substitute for the module that puts the tools of web-platform-tests on the path."""
