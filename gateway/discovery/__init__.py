"""Who is out there: producers of the members of a pool, from DNS, a file or Kubernetes.

Each says the whole set whenever it has changed, and nothing where it does not know: an error never empties a pool. What
is done with the set is not known here.
"""
