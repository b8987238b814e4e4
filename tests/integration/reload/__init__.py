"""The specification of hot reload and of changes by hand: a gateway that goes on while what it is changes."""
