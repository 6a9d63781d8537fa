"""Scheduling on the event loop: fair shares, time slices, shared timeouts, priority of the model's calls."""
