"""What balancing by affinity is worth: compiled grammars and prompt prefixes found in the caches of engines."""
