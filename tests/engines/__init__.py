"""Tests on real engines, run on CPU with a tiny model. Opt-in: `make test-engines` builds what they need first."""
