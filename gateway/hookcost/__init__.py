"""Meaning: from a request's path and body to features, predicted hook cost and signature.

Pure: no I/O, no clock, nothing of ours imported. The way in is `classify(path, body)`.
"""
