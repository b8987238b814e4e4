"""What each step of an engine cost, by hook kind and by request id.

    records     what is written: steps, offences, compiles
    ring        where it is written: bounded shared memory with one writer and any number of readers
    judge       which request is over which limit: pure decisions
    recorder    the step thread's side, which joins these three

Engine-agnostic and standard library only: it runs inside the engine's process, on its step thread, in its
environment. It refuses to know who reads the ring and how a request is ended.
"""
