"""Steplane's gateway: the reverse proxy that routes each request by what it costs the engine's step thread."""

__version__ = "0.1.0"
