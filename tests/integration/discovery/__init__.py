"""The specification of discovery: against a DNS server, files and an API server that speak the real protocols."""
