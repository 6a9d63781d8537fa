"""The command `stdio`: connects a desktop client's stdio to the running gateway."""
