"""How fast a signature that breaks its step budget is kept away from others, and whether only such signatures are."""
