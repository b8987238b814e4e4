"""What a gateway costs: CPU time per request and per SSE chunk, beside its peers, in one run on one machine.

Owns the bench of the data plane: `python -m loadtest.wire`. It knows gateways only as commands that listen on a port
(contenders.py) and nothing of their insides. The clients and the engines are one small C program (driver.c), because
a client in Python would be slower than what it measures.
"""
