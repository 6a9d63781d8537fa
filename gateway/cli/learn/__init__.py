"""Routes learned from what an API says of itself, or from what persons did: proposals, for people to read."""
