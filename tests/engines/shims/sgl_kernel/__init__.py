"""Stands in for SGLang's compiled kernels, of which no CPU build is published.

SGLang 0.5.23 imports its CPU kernels by name whether or not they will run; on a machine without AMX, and without
speculative decoding, none is called. Every name exists here and raises when called, so a path that does need a kernel
says so instead of answering wrongly.
"""

from collections.abc import Callable
from typing import NoReturn


def __getattr__(name: str) -> Callable[..., NoReturn]:
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*_args: object, **_kwargs: object) -> NoReturn:
        raise NotImplementedError(f"sgl_kernel.{name}: compiled kernels are not available in this CPU environment")

    return missing
