"""Results for people: plots, an HTML page and Markdown. Measures nothing."""
