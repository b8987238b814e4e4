"""What people install: wheel, image, chart and site; and what several gateways survive. `make test-deploy`."""
