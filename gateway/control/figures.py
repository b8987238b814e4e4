"""How quantities read. Knows none of them."""


def number(value: float) -> str:
    """A measured quantity for people: four digits, thousands apart, no exponent."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
