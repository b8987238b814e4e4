"""The documentation: its YAML and its commands are real, and what is made from the code is current."""
