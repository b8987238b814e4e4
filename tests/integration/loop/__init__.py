"""The closed loop: what a step cost, by a replica's step feed, decides where the next request goes."""
