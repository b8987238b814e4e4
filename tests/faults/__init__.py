"""A gateway under load whose ways to its replicas fail."""
