"""Real supervisors and workers as processes of their own."""
