"""Workloads, load clients and benchmarks. Imports nothing of `gateway`."""
