"""The documentation: what it shows as YAML or as a command must be one, and what is made from the code must be current."""
