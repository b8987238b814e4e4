"""Measures what grammars cost on this machine: the real backend, its tokenizer, made-up and given schemas.

Runs in the engine's environment (`python -m replica.calibrate`) and writes measurements; what they mean for the price
list is the gateway's to work out.
"""
