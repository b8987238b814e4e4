"""The step feed: an engine's step records over HTTP, from a process of its own.

    process       the engine's side: starts that process, hears what it is asked for
    __main__      the process: `python -m replica.feed`
    app           the routes
    stream        `GET /steps`
    summary       `GET /summary`, `GET /stacks`
    flamegraph    `GET /flamegraph`
    rollup        what steps came to, for readers that want few lines
    document      records as JSON

The engine shares its ring's memory with this process and never waits for it, whatever its readers do.
"""
