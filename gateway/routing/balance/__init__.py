"""Which replica of a pool takes a request, where the least loaded is not the answer: filter, score, pick."""
