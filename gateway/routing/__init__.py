"""Choice: which pool and which replica a classified request goes to.

Rules are compiled once; deciding is a walk over plain closures. Knows no socket and no YAML file.
"""
