"""SGLang, measured and kept in time from within, through its own plugin entry point. Written against 0.5.23.

    plugin     the entry point: what is hooked, and what is not there to be hooked
    timers     the hooks around the scheduler's functions
    grammars   timers on single grammar objects
    shares     who pays for work that is done for several requests at once
    requestids the ids under which the scheduler knows requests
    endings    how a request over a limit is ended
    polling    waiting for grammars without sleeping in the step
    backend    grammar backends that compile off the step thread

Nothing here imports SGLang before SGLang itself has asked for the plugin.
"""
