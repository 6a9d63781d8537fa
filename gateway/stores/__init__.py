"""Where things are kept: the record as an append-only journal, and databases that are filled from it."""
