"""Conditions in CEL, the language of Envoy, Kubernetes and the Gateway API: read, type-checked, and evaluated.

The evaluator is the package `common-expression-language`, an implementation of the language in Rust. It has no type
checker and shows no syntax tree, so what a configuration must be told of at load is found here: `parser.py` reads the
part of the language that is of use in a rule, `checker.py` its types.
"""
