"""Tenants: whose a request is, and what that tenant may ask for. Pure: no I/O, the clock is the caller's."""
