"""vLLM, measured and kept in time from within, through `vllm.general_plugins`. Written against 0.32.0 (V1 engine).

    plugin     the entry point: what is wrapped, and what is not there to be wrapped
    timers     around the engine core's step and the model runner
    compiles   around structured output: compiles timed, limited, off the step's CPUs
    endings    how a request over a limit is ended

Nothing here imports vLLM before vLLM itself has asked for the plugin.
"""
