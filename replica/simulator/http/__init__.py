"""SGLang's HTTP surface (0.5.23) over the front end. Knows bytes and shapes; knows no step."""
