"""The dashboard in a real browser, before a running `steplane up` under load: `make test-browser`."""
