"""When something is tried again, how often in all, how soon, and until when. Pure: no socket, and clocks are given."""
