"""Many processes, one gateway: a supervisor over workers, each of which is a whole gateway on the same ports.

The supervisor (supervisor.py) owns the listening sockets, the admin port that people see, and what the workers share;
it carries no request. A worker (worker.py) is the only part in here that knows the gateway.
"""
