// Not run.
