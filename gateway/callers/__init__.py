"""Authentication of callers: maps credentials to a principal or a refusal; the caller of this package does the I/O."""
