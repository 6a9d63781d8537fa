// Not asked for.
