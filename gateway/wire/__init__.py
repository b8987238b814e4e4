"""Bytes: the HTTP/1.1 server and client protocols, the upstream pools, framing, back-pressure and disconnects.

Knows nothing of LLMs and imports nothing of ours. The owner of a `Server` gives it a `Handler` (exchange.py), which
decides where each exchange goes; everything here runs on one event loop without a task per request.
"""
