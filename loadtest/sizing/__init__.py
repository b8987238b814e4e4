"""What a fleet costs its gateways: several of them, a Redis and a dozen replicas as processes. `make sizing`."""
