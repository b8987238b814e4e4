"""The specification of the wire, over real sockets and on the event loop that production uses."""
