"""Compiling grammars off the step thread, and ending compiles that take too long.

    price     which grammars look so dear that they are tried in a child first
    pool      threads that compile the rest and give way to the step
    trial     the child that can be killed, and its master
    refusals  grammars that are refused for a while
    cache     a bounded cache of compiled grammars

Engine-agnostic; the engines' own classes stand in `replica.sglang` and `replica.vllm`.
"""
