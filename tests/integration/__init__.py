"""Tests of the running whole, over real sockets and processes."""
