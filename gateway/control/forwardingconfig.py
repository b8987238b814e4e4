"""What replicas are told of the clients whose requests they get, and who may have said so already."""

from ipaddress import ip_network
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints

from gateway.control.part import Part
from gateway.control.validation import PSEUDONYM_PATTERN, custom_error
from gateway.wire.forwarding import Forwarding

_UNIX = "unix"


def _network(text: str) -> str:
    try:
        if text != _UNIX:
            ip_network(text)
    except ValueError as error:
        hint = "the bits behind the prefix must be zero" if "host bits" in str(error) else None
        raise custom_error(f"an address or network, as in 10.0.0.0/8, or {_UNIX}", hint) from None
    return text


class ForwardingConfig(Part):
    """The headers that say for whom a request is forwarded.

    headers:         `x-forwarded`: X-Forwarded-For, -Proto and -Host; `rfc7239`: Forwarded; `both`; or `off`: then what
                     clients send of these goes on as it came.
    trusted_proxies: addresses and networks of proxies in front, or `unix` for whoever connects through a Unix socket.
                     Their X-Forwarded-* and Forwarded are added to; those of all others are dropped.
    via:             our name in `Via`, as RFC 9110 asks of a gateway; by default none is added.
    """

    headers: Literal["off", "x-forwarded", "rfc7239", "both"] = "x-forwarded"
    trusted_proxies: list[Annotated[str, AfterValidator(_network)]] = Field(default_factory=list)
    via: Annotated[str, StringConstraints(pattern=PSEUDONYM_PATTERN)] | None = None

    def build(self) -> Forwarding | None:
        """What the wire goes by; None if all headers go on as they came."""
        if self.headers == "off" and self.via is None:
            return None
        return Forwarding(
            x_forwarded=self.headers in ("x-forwarded", "both"),
            rfc7239=self.headers in ("rfc7239", "both"),
            via=(self.via or "").encode(),
            trusted=tuple(ip_network(each) for each in self.trusted_proxies if each != _UNIX),
            trusts_unix=_UNIX in self.trusted_proxies,
        )
