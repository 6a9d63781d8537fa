"""The ways into the gateway. Doors translate; the exchange and the views decide."""
