"""The command `stdio`: a pipe from a desktop client to the running gateway."""
