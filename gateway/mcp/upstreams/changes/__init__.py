"""Change notifications of upstreams and their subscribers."""
