"""Steplane as the endpoint picker of another data plane: Envoy asks by ext_proc, and carries the requests itself."""
