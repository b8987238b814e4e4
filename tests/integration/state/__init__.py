"""The store that gateways share, on a real Redis."""
