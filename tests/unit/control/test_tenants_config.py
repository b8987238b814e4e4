"""What may be said of tenants, keys and limits, and what each mistake is answered with."""

from pathlib import Path

import pytest

from gateway.control.assembly import build_tenants
from gateway.control.config import load_config, parse_config
from gateway.control.problem import ConfigError
from gateway.tenants.allowance import Rate, Resource
from gateway.tenants.keys import digest

POOLS = "default_pool: all\npools: {all: {replicas: [http://127.0.0.1:30000]}}\n"
KEY = digest(b"sk-one")


def tenants_of(text: str) -> str:
    return f"{POOLS}tenants:\n  named:\n    acme: {text}\n"


def problems_of(text: str) -> list[str]:
    with pytest.raises(ConfigError) as refused:
        parse_config(text, "f.yaml")
    return [str(problem) for problem in refused.value.problems]


def test_limits_have_bursts_of_ten_seconds_unless_they_say_otherwise() -> None:
    config = parse_config(
        tenants_of("{limits: {requests_per_s: 0.01, tokens_per_s: 50, hook_us_per_s: 5, hook_us_burst: 9}}")
    )
    assert config.tenants.profiles()["acme"].limits == {
        Resource.requests: Rate(0.01, 1.0),
        Resource.tokens: Rate(50.0, 500.0),
        Resource.hook_us: Rate(5.0, 9.0),
    }


def test_a_tenants_own_limits_stand_in_the_place_of_those_for_all() -> None:
    text = f"{POOLS}tenants: {{limits: {{requests_per_s: 1}}, named: {{a: {{limits: {{tokens_per_s: 2}}}}, b: {{}}}}}}"
    tenants = parse_config(text).tenants
    assert set(tenants.profiles()["a"].limits) == {Resource.tokens}
    assert set(tenants.profiles()["b"].limits) == set(tenants.unnamed().limits) == {Resource.requests}


def test_keys_come_from_the_file_that_is_named_too(tmp_path: Path) -> None:
    (tmp_path / "acme.keys").write_text(f"# of the batch service\n{KEY}  # since May\n\n", encoding="utf-8")
    (tmp_path / "f.yaml").write_text(tenants_of("{keys_file: acme.keys}"), encoding="utf-8")
    register = build_tenants(load_config(tmp_path / "f.yaml"), lambda: 0.0, lambda: 0.0)
    assert register.of([(b"authorization", b"Bearer sk-one")]) == "acme"
    assert register.holds_keys


MISTAKES: dict[str, tuple[str, str]] = {
    "a key that is no digest": (
        tenants_of("{keys: [sk-one]}"),
        "tenants.named.acme.keys[0]: expected a digest like sha256:",
    ),
    "a file that is not there": (tenants_of("{keys_file: none}"), "can't read the keys in none"),
    "a key of two tenants": (
        f"{POOLS}tenants: {{named: {{a: {{keys: ['{KEY}']}}, b: {{keys: ['{KEY}']}}}}}}",
        "belongs to 'a' and to 'b'",
    ),
    "a pool that is not there": (
        tenants_of("{pools: [al]}"),
        "tenants.named.acme.pools[0]: expected one of all, found 'al'",
    ),
    "a limit of nothing": (tenants_of("{limits: {requests_per_s: 0}}"), "tenants.named.acme.limits.requests_per_s"),
    "a burst below one request": (tenants_of("{limits: {requests_burst: 0.5}}"), "limits.requests_burst"),
    "no models at all": (tenants_of("{models: []}"), "tenants.named.acme.models"),
    "a key for the engines that can't stand in a header": (
        'default_pool: all\npools: {all: {api_key: "a\\nb", replicas: [http://127.0.0.1:30000]}}\n',
        "pools.all.api_key: expected a key of printable ASCII characters",
    ),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_a_mistake_is_named_with_its_place(what: str) -> None:
    text, said = MISTAKES[what]
    (problem,) = problems_of(text)
    assert problem.startswith("f.yaml:")
    assert said in problem


def test_a_line_of_a_file_of_keys_that_is_no_digest_is_named(tmp_path: Path) -> None:
    (tmp_path / "acme.keys").write_text(f"{KEY}\nsk-one\n", encoding="utf-8")
    (tmp_path / "f.yaml").write_text(tenants_of("{keys_file: acme.keys}"), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"acme\.keys, line 2"):
        load_config(tmp_path / "f.yaml")
