"""The dashboard: what its page is told each second, what it remembers for that, and the page itself (`static/`)."""
