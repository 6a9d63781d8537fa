"""`policy`: checks and explains policies before they are in use."""
