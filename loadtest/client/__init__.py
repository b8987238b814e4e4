"""Who asks: an open-loop HTTP client that streams, and what came of each of its requests."""
