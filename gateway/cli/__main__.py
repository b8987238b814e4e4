"""`python -m gateway.cli` is `steplane`."""

from gateway.cli import main

main()
