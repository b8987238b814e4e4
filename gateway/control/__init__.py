"""People: the configuration file, the admin API, metrics and explanations. Nothing here is on a request's way."""
