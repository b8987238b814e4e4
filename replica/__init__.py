"""What runs beside and inside an engine. Imports nothing of `gateway`."""
