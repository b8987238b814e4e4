"""What an expression in CEL demands of a number at the least, as far as its comparisons with constants say so."""

import math

from gateway.routing.cel.tree import Binary, Literal, Name, Node


def least_of(node: Node, name: str) -> float:
    """No value of the variable below this makes the expression true; -inf where that can't be told."""
    if not isinstance(node, Binary):
        return -math.inf
    match node.operator:
        case "&&":
            return max(least_of(node.left, name), least_of(node.right, name))
        case "||":
            return min(least_of(node.left, name), least_of(node.right, name))
        case ">" | ">=":
            return _constant(node.right) if _is(node.left, name) else -math.inf
        case "<" | "<=":
            return _constant(node.left) if _is(node.right, name) else -math.inf
        case "==" if _is(node.left, name):
            return _constant(node.right)
        case "==" if _is(node.right, name):
            return _constant(node.left)
    return -math.inf


def _is(node: Node, name: str) -> bool:
    return isinstance(node, Name) and node.name == name


def _constant(node: Node) -> float:
    number = isinstance(node, Literal) and not isinstance(node.value, bool) and isinstance(node.value, int | float)
    return float(node.value) if number else -math.inf  # type: ignore[union-attr, arg-type]
