"""Storage: the record as an append-only journal, and the databases that are filled from it."""
