"""Senses: what the gateway learns about its replicas while it runs."""
