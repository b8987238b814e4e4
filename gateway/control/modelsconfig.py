"""The configuration of models: how the list of them is made, and the names under which clients may ask for them."""

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from gateway.control.part import Part, Seconds

ModelName = Annotated[str, StringConstraints(min_length=1, max_length=256)]


class ModelsConfig(Part):
    """The models behind the gateway.

    list:      `merged`: `/v1/models` is answered with what all replicas serve; `pass`: by one of the default pool.
    refresh_s: how often each replica is asked what it serves.
    aliases:   the real name by what clients may call it; rules see the real one.
    unknown:   `pass`: a model that no replica serves is the engine's to refuse; `refuse`: it gets 404 here.
    """

    list: Literal["merged", "pass"] = "merged"
    refresh_s: Seconds = 30
    aliases: dict[ModelName, ModelName] = Field(default_factory=dict)
    unknown: Literal["pass", "refuse"] = "pass"
