"""The API of the admin port, one noun a file. What it shows is in gateway/control/context.py."""
