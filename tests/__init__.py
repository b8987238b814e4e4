"""The tests: a package so that `tests.clients` and `tests.engines` can be imported from everywhere in it."""
