"""The same page at its backend, on its app's own site and in a view: what its requests take there."""
