"""The one way in which a benchmark fails."""


class BenchmarkError(Exception):
    """The benchmark cannot go on; the message is for the person who started it."""
