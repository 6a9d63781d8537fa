"""One request with its answer: decided, limited, approved, recorded, authenticated, sent and filtered."""
