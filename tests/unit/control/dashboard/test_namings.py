"""When a signature was last named, by whom and why."""

from gateway.control.dashboard.namings import Namings
from gateway.hookcost.observation import CompileObservation, Limit, OffenceObservation, Origin, StepObservation

ORIGIN = Origin("r1", "s1-00000000000000b0", "acme", "interactive", "i1", 1000.0)


def test_steps_grammars_and_verdicts_are_told_newest_first() -> None:
    at = iter([1.0, 2.0, 3.0])
    namings = Namings(lambda: next(at))
    namings.add(StepObservation(ORIGIN, 0.0, 1500.04, {"grammar_fill": 1500.04}))
    namings.add(CompileObservation(ORIGIN, 0.0, 12.0, "no such reference"))
    namings.add(OffenceObservation(ORIGIN, 0.0, Limit.hard, "grammar_fill", 9000.0, 5000.0, True, "too long"))

    found = namings.of(ORIGIN.signature)

    assert [(each.at, each.what, each.us, each.said) for each in found] == [
        (3.0, "watchdog", 9000.0, "too long"),
        (2.0, "compile", 12_000.0, "no such reference"),
        (1.0, "step", 1500.0, ""),
    ]
    assert found[2].by_kind == {"grammar_fill": 1500.0}
    assert (found[0].request_id, found[0].tenant, found[0].replica) == ("r1", "acme", "i1")
    assert namings.of("s1-0000000000000001") == []


def test_of_each_the_last_are_kept_and_of_all_those_that_were_named_last() -> None:
    namings = Namings(lambda: 1.0)
    for number in range(600):
        origin = Origin("r", f"s{number}", "", "p", "i1")
        for own_us in range(30):
            namings.add(StepObservation(origin, 0.0, float(own_us), {}))

    assert [each.us for each in namings.of("s599")] == [float(us) for us in range(29, 9, -1)]
    assert namings.of("s0") == []
