"""`make bench`: the same replicas and the same traffic behind Steplane and behind its peers."""
