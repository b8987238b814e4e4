"""What a scenario sends, and when."""

import random
from collections import Counter
from pathlib import Path

import orjson
import pytest

from loadtest.traffic.arrivals import Arrival, Bursts, Trace, TraceError, arrivals, read_trace
from loadtest.traffic.kinds import COMPLETIONS, KINDS, Choice
from loadtest.traffic.lengths import Lognormal, Uniform, draw
from loadtest.traffic.plan import Planned, class_of, plan
from loadtest.traffic.scenario import SHIPPED, Scenario, ScenarioError, load
from loadtest.traffic.schemas import SchemaError, some

CORPUS = Path(__file__).resolve().parents[4] / "shared" / "data"


def scenario(**more: object) -> Scenario:
    classes = {"chat": {"kind": "chat", "weight": 3}, "bomb": {"kind": "ebnf_bomb", "hostile": True}}
    return Scenario.model_validate({"name": "s", "rate_per_s": 40, "duration_s": 10, "classes": classes, **more})


def shape(planned: Planned) -> tuple[object, ...]:
    """What is the same of a request at every target: all but its id and its words."""
    body = orjson.loads(planned.body)
    words = len(body["messages"][0]["content"].split())
    return planned.due_s, planned.kind, planned.path, planned.measured, words, body["max_tokens"]


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.yaml")), ids=lambda path: path.stem)
def test_what_is_shipped_can_be_run(path: Path) -> None:
    shipped = load(Path(path.stem))
    assert shipped.name == path.stem
    for phase in shipped.phases:
        assert plan(shipped.model_copy(update={"duration_s": 2.0}), phase, "0/x")


def test_hostile_traffic_comes_on_top_and_leaves_the_others_as_they_were() -> None:
    calm, hostile = (plan(scenario(), phase, "0/x") for phase in ("calm", "hostile"))
    assert {each.kind for each in calm} == {"chat"}
    assert [shape(each) for each in hostile if each.kind == "chat"] == [shape(each) for each in calm]
    assert len(hostile) > len(calm)


def test_every_target_gets_the_same_and_every_round_something_else() -> None:
    first, second, later = (
        [shape(each) for each in plan(scenario(), "hostile", turn)] for turn in ("0/a", "0/b", "1/a")
    )
    assert first == second != later


def test_what_is_asked_twice_for_the_same_slice_is_the_same() -> None:
    assert plan(scenario(), "hostile", "0/a") == plan(scenario(), "hostile", "0/a")


def test_no_engine_knows_from_one_target_what_the_next_one_asks() -> None:
    classes = {
        "chat": {"kind": "chat"},
        "cold": {"kind": "large_schema_cold", "hostile": True},
        "bomb": {"kind": "compile_bomb", "hostile": True},
    }
    asked = scenario(request_ids=False, classes=classes)
    slices = [plan(asked, phase, turn) for turn in ("0/a", "0/b") for phase in ("calm", "hostile")]
    bodies = [each.body for planned in slices for each in planned]
    assert len(set(bodies)) == len(bodies)
    schemas = [orjson.dumps(each.schema) for planned in slices for each in planned if each.schema is not None]
    assert len(set(schemas)) == len(schemas) > 0


def test_classes_share_the_rate_by_weight() -> None:
    planned = plan(scenario(duration_s=100), "hostile", "0/x")
    counts = Counter(each.kind for each in planned)
    assert 2.6 < counts["chat"] / counts["bomb"] < 3.4
    assert 35 < len(planned) / 102 < 45


def test_request_ids_say_their_class_and_are_all_different() -> None:
    rids = [orjson.loads(each.body)["rid"] for each in plan(scenario(), "hostile", "0/x")]
    assert len(set(rids)) == len(rids)
    assert {class_of(rid) for rid in rids} == {"chat", "bomb"}
    assert class_of("cmpl-1234") == ""


def test_what_is_sent_while_the_target_warms_up_is_not_measured() -> None:
    planned = plan(scenario(warm_s=2), "calm", "0/x")
    assert all(each.measured == (each.due_s >= 2) for each in planned)
    assert not planned[0].measured


def test_fields_of_the_scenario_win_over_those_of_the_kind() -> None:
    classes = {"chat": {"kind": "chat", "body": {"temperature": 0.7}, "output_tokens": 5}}
    body = orjson.loads(plan(scenario(classes=classes), "calm", "0/x")[0].body)
    assert (body["temperature"], body["max_tokens"]) == (0.7, 5)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_every_kind_makes_bodies_that_are_json(name: str) -> None:
    asked = next(KINDS[name](Choice(), random.Random(1)))
    assert orjson.loads(orjson.dumps(asked.fields)) == asked.fields
    assert asked.path in (None, COMPLETIONS)


@pytest.mark.parametrize("name", ["large_schema_cold", "compile_bomb"])
def test_what_must_be_cold_is_never_the_same_twice(name: str) -> None:
    kind = KINDS[name](Choice(count=3), random.Random(1))
    assert len({orjson.dumps(next(kind).fields) for _ in range(50)}) == 50


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"classes": {"x": {"kind": "chatt"}}}, "classes.x.kind: Value error, no such kind; expected one of chat, "),
        ({"rate_per_s": 0}, "rate_per_s: Input should be greater than 0"),
        ({"rate": 3}, "rate: Extra inputs are not permitted"),
        ({"classes": {"x": {"kind": "chat", "hostile": True}}}, "the phase calm is empty: all classes are hostile"),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path: Path, change: dict[str, object], said: str) -> None:
    document = {"name": "s", "rate_per_s": 1, "classes": {"chat": {"kind": "chat"}}} | change
    path = tmp_path / "s.yaml"
    path.write_bytes(orjson.dumps(document))
    with pytest.raises(ScenarioError) as caught:
        load(path)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)


def test_a_name_that_nobody_ships_is_told_with_those_that_are() -> None:
    with pytest.raises(ScenarioError, match=r"isolation"):
        load(Path("isolatoin"))


def test_moments_come_by_chance_at_the_rate_that_is_asked() -> None:
    moments = [each.at_s for each in arrivals("poisson", 100, 50, random.Random(1))]
    assert moments == sorted(moments)
    assert 4600 < len(moments) < 5400


def test_bursts_come_together_and_keep_the_rate() -> None:
    moments = Counter(each.at_s for each in arrivals(Bursts(burst=8), 80, 100, random.Random(1)))
    assert set(moments.values()) == {8}
    assert 6500 < moments.total() < 9500


def test_a_trace_is_replayed_from_its_first_moment_and_again_when_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "day.csv"
    path.write_text("at_s,prompt_tokens,output_tokens\n100,7,3\n101,,\n102,9,4\n")
    found = list(arrivals(Trace(trace=path, speed=2), 1, 3, random.Random(1)))
    assert [each.at_s for each in found] == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]
    assert found[0] == Arrival(0.0, 7, 3)
    assert found[1] == Arrival(0.5, None, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("at_s\n", "no row below the header"),
        ("when\n3\n", "line 2: expected at_s"),
        ("at_s\n1\nx\n", "line 3: expected"),
    ],
)
def test_a_trace_that_cannot_be_replayed_says_where(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "day.csv"
    path.write_text(text)
    with pytest.raises(TraceError, match=said):
        read_trace(path)


def test_lengths_keep_their_bounds() -> None:
    chance = random.Random(1)
    drawn = [draw(Lognormal(median=100, sigma=1.0, most=300), chance) for _ in range(2000)]
    assert max(drawn) == 300
    assert 90 < sorted(drawn)[1000] < 110
    assert {draw(Uniform(least=2, most=4), chance) for _ in range(200)} == {2, 3, 4}
    assert draw(5, chance) == 5


def test_schemas_come_from_a_folder_of_json_and_of_lines(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"type": "object", "title": "a"}')
    (tmp_path / "b.jsonl").write_text('{"schema": {"type": "object", "title": "b"}}\n{"schema": true}\n')
    (tmp_path / "c.txt").write_text("no schema")
    assert [each["title"] for each in some(tmp_path, 10)] == ["a", "b"]
    assert len(some(tmp_path, 1)) == 1


def test_a_folder_without_schemas_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=r"no schema; expected \*\.json"):
        some(tmp_path, 10)


@pytest.mark.skipif(not CORPUS.exists(), reason="the corpus of real schemas is not here")
def test_real_schemas_can_be_asked_for() -> None:
    asked = KINDS["schemas"](Choice(count=50, folder=CORPUS / "schemas.jsonl.gz"), random.Random(1))
    drawn = [orjson.dumps(next(asked).schema) for _ in range(500)]
    assert 10 < len(set(drawn)) <= 50
