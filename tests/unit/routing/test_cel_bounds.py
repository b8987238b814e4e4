import math

import pytest

from gateway.routing.cel.bounds import least_of
from gateway.routing.cel.parser import parse


@pytest.mark.parametrize(
    ("expression", "least"),
    [
        ("x > 5.0", 5.0),
        ("x >= 5", 5.0),
        ("5 < x", 5.0),
        ("5.5 <= x", 5.5),
        ("x == 7.0", 7.0),
        ("7 == x", 7.0),
        ("x > 5.0 && y == 'a' && x > 9.0", 9.0),
        ("x > 5.0 || x > 9.0", 5.0),
        ("x > 5.0 || y", -math.inf),
        ("(x > 5.0 || x > 6.0) && z > 20.0", 5.0),
        ("x < 5.0", -math.inf),
        ("5 > x", -math.inf),
        ("x != 5.0", -math.inf),
        ("!(x > 5.0)", -math.inf),
        ("x > y", -math.inf),
        ("x > true", -math.inf),
        ("x + 1.0 > 5.0", -math.inf),
        ("a.x > 5.0", -math.inf),
        ("y > 5.0", -math.inf),
        ("x > 5.0 ? true : false", -math.inf),
        ("x", -math.inf),
    ],
)
def test_an_expression_says_what_a_number_is_at_the_least(expression: str, least: float) -> None:
    assert least_of(parse(expression), "x") == least
