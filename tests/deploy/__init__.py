"""What people install: the wheel, the image, the chart, the site, and what several gateways survive. `make test-deploy`."""
