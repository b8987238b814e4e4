"""Who looks at requests follows the configuration, and leaves others who look alone."""

from types import SimpleNamespace
from typing import Any

from gateway.accesslog import AccessLog
from gateway.control.config import Config, parse_config
from gateway.control.tally import Tally
from gateway.tenantcount import TenantCount
from gateway.watch import Watch

LEAST = "default_pool: a\npools: {a: {replicas: ['http://h:1']}}\n"


class Other:
    """Somebody else who wants to know."""


def config(text: str) -> Config:
    return parse_config(f"{text}\n{LEAST}", "f.yaml", {})


async def test_a_reload_puts_in_and_takes_out_who_looks() -> None:
    other = Other()
    proxy: Any = SimpleNamespace(witnesses=(other,), turned_away=None, tracer=None)
    watch = Watch(config(""), proxy, Tally())
    assert proxy.witnesses == (other,)
    assert proxy.turned_away is None

    watch.configure(config("tenants: {named: {acme: {}}}"))
    assert [type(each) for each in proxy.witnesses] == [Other, TenantCount]

    access = Watch(config("logs: {access: {sample: 0.5}}"), proxy, Tally())
    assert [type(each) for each in proxy.witnesses] == [Other, TenantCount, AccessLog]
    assert proxy.turned_away is not None

    watch.configure(config(""))
    await access.close()
    await watch.close()
    assert [type(each) for each in proxy.witnesses] == [Other, AccessLog]
