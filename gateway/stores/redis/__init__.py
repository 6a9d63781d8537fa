"""State that several gateways share in one Redis or Valkey and that may be lost: rates, views, counts of callers.

It is imported only with `stores.redis`. Losing it makes limits stricter and hides views of other processes; it never
allows anything.
"""
