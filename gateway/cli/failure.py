"""How commands fail: one message on stderr and an exit code.

0: done. 1: it could not be done (a file, the configuration, a port, a simulator). 2: wrong usage. 3: `explain` only:
decided, and the decision is that the request gets an error. 128 + signal: ended by a second signal.
"""

FAILED = 1
REFUSED = 3


class CliError(Exception):
    """Ends the command; the text says what was wrong and what to do."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        super().__init__(message)
        self.exit_code = exit_code
