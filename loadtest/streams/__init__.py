"""Idle streams by the thousand: what each costs in memory, how late comments are, who hears when clients leave."""
