"""Who a request belongs to, what it may do, and that several gateways spend from one limit."""

import math

import pytest

from gateway.tenants.allowance import Rate, Resource
from gateway.tenants.keys import bare, digest, is_digest, new_key
from gateway.tenants.profile import Profile, patterns
from gateway.tenants.register import Register

KEY = b"sk-one"
TEN = {Resource.requests: Rate(1.0, 10.0), Resource.tokens: Rate(10.0, 100.0)}


class Time:
    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def register(time: Time | None = None, **options: object) -> Register:
    clock = time or Time()
    return Register(clock, clock, **options)  # type: ignore[arg-type]


def headers(**fields: str) -> list[tuple[bytes, bytes]]:
    return [(name.replace("_", "-").encode(), value.encode()) for name, value in fields.items()]


WHO: dict[str, tuple[dict[str, str], str]] = {
    "a known key": ({"authorization": "Bearer sk-one"}, "acme"),
    "a known key, oddly spelled": ({"Authorization": "bearer   sk-one "}, "acme"),
    "a known key as Anthropic's clients send it": ({"x-api-key": "sk-one"}, "acme"),
    "no key": ({"accept": "*/*"}, ""),
    "an empty key": ({"authorization": "Bearer "}, ""),
    "the header of a proxy in front": ({"x-tenant": "blue", "authorization": "Bearer sk-one"}, "blue"),
    "an empty header of a proxy in front": ({"x-tenant": "", "authorization": "Bearer sk-one"}, "acme"),
}


@pytest.mark.parametrize("what", WHO)
def test_the_tenant_is_told_by(what: str) -> None:
    fields, tenant = WHO[what]
    assert register(header="x-tenant", keys={digest(KEY): "acme"}).of(headers(**fields)) == tenant


def test_an_unknown_key_is_a_tenant_of_its_own_whose_name_gives_nothing_away() -> None:
    one, other = (register().of(headers(authorization=f"Bearer {key}")) for key in ("sk-one", "sk-two"))
    assert one != other
    assert one.startswith("key-")
    assert "sk-one" not in one


def test_where_a_key_is_required_an_unknown_one_is_nobody() -> None:
    strict = register(require_key=True, keys={digest(KEY): "acme"})
    assert strict.of(headers(authorization="Bearer sk-two")) == ""
    assert strict.of(headers(authorization="Bearer sk-one")) == "acme"


def test_keys_that_all_gateways_share_are_known_until_they_are_taken_back() -> None:
    tenants = register(require_key=True)
    tenants.key_stored(digest(KEY), "acme")
    assert tenants.of(headers(x_api_key="sk-one")) == "acme"
    tenants.configure(require_key=True)
    assert tenants.of(headers(x_api_key="sk-one")) == "acme"
    tenants.key_stored(digest(KEY), "")
    assert tenants.of(headers(x_api_key="sk-one")) == ""


def test_keys_are_long_random_and_known_by_a_digest() -> None:
    one, other = new_key(), new_key()
    assert one != other
    assert len(one) > 50
    assert is_digest(digest(one.encode()))
    assert not is_digest(one)
    assert bare(b"Bearer  abc ") == b"abc"


def test_models_are_named_by_patterns() -> None:
    profile = Profile(models=patterns(["qwen*", "llama-3?"]))
    assert [profile.may_use(name) for name in ("qwen3-8b", "llama-31", "llama-3", "gpt", "QWEN", None)] == [
        True,
        True,
        False,
        False,
        False,
        True,
    ]
    assert Profile().may_use("anything")


def test_only_who_is_limited_has_an_allowance() -> None:
    tenants = register(named={"acme": Profile(limits=TEN), "free": Profile()})
    assert tenants.allowance("acme") is tenants.allowance("acme")
    assert tenants.allowance("free") is None
    assert tenants.allowance("stranger") is None
    assert tenants.restricts
    assert not register(named={"free": Profile(priority=3)}).restricts
    assert register(require_key=True).restricts
    assert register(unnamed=Profile(limits=TEN)).restricts


def test_strangers_are_forgotten_in_the_order_in_which_they_were_seen() -> None:
    tenants = register(unnamed=Profile(limits=TEN))
    first = tenants.allowance("0")
    second = tenants.allowance("1")
    for number in range(2, 10_000):
        tenants.allowance(str(number))
    assert tenants.allowance("0") is first
    tenants.allowance("one more")
    assert tenants.allowance("0") is first
    assert tenants.allowance("1") is not second


def test_several_gateways_spend_from_one_limit() -> None:
    time = Time()
    here, there = (register(time, named={"acme": Profile(limits=TEN)}) for _ in range(2))
    allowance = here.allowance("acme")
    assert allowance is not None
    for _ in range(10):
        assert allowance.take(0.0, 0.0, time.now_s) is None
        here.used("acme", Resource.requests, 1.0)
    for key, amounts in here.export().items():
        there.merge(key, amounts)
    elsewhere = there.allowance("acme")
    assert elsewhere is not None
    excess = elsewhere.take(0.0, 0.0, time.now_s)
    assert excess is not None
    assert excess.resource is Resource.requests
    assert here.export() == {}


@pytest.mark.parametrize(
    ("key", "amounts", "charged"),
    [
        ("100:acme", {"requests": 4.0}, 4.0),
        ("99:acme", {"requests": 4.0}, 4.0),
        ("98:acme", {"requests": 4.0}, 0.0),
        ("100:acme", {"requests": 4.0, "wishes": 3.0}, 4.0),
        ("100:stranger", {"requests": 4.0}, 0.0),
        ("acme", {"requests": 4.0}, 0.0),
        ("x:acme", {"requests": 4.0}, 0.0),
    ],
)
def test_what_others_used_is_charged_if_it_is_recent_and_understood(
    key: str, amounts: dict[str, float], charged: float
) -> None:
    tenants = register(named={"acme": Profile(limits=TEN)})
    tenants.merge(key, amounts)
    allowance = tenants.allowance("acme")
    assert allowance is not None
    assert allowance.levels(1000.0)[Resource.requests] == 10.0 - charged


def test_a_reload_keeps_debts_and_drops_limits_that_are_gone() -> None:
    tenants = register(named={"acme": Profile(limits=TEN), "blue": Profile(limits=TEN)})
    for name in ("acme", "blue"):
        allowance = tenants.allowance(name)
        assert allowance is not None
        allowance.spend({Resource.tokens: 150.0}, 1000.0)
    tenants.configure(named={"acme": Profile(limits={Resource.tokens: Rate(20.0, 500.0)})})
    acme = tenants.allowance("acme")
    assert acme is not None
    assert acme.levels(1000.0) == {Resource.tokens: -50.0}
    assert tenants.allowance("blue") is None
    assert math.isfinite(acme.levels(2000.0)[Resource.tokens])
