"""Calls and start-up of an app on a host page: over the bridge, and with HTTP posts to a back end."""
