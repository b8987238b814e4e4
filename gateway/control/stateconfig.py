"""The configuration of shared state: in this process alone, or through Redis with other gateways."""

from pathlib import Path

from pydantic import model_validator

from gateway.control.part import Part
from gateway.control.validation import custom_error
from gateway.state.options import RedisOptions


class RedisConfig(Part):
    """How Redis is reached; see `RedisOptions`. Files are relative to the configuration's folder."""

    url: str
    prefix: str = "steplane"
    username: str | None = None
    password: str | None = None
    password_file: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    @model_validator(mode="after")
    def _checked(self) -> "RedisConfig":
        try:
            self.options(Path())
        except ValueError as error:
            raise custom_error(str(error)) from None
        return self

    def options(self, folder: Path) -> RedisOptions:
        """The store's own options. Raises ValueError."""
        files = {
            name: None if value is None else folder / value
            for name, value in (
                ("password_file", self.password_file),
                ("ca_file", self.ca_file),
                ("cert_file", self.cert_file),
                ("key_file", self.key_file),
            )
        }
        return RedisOptions(
            url=self.url,
            prefix=self.prefix,
            username=self.username,
            password=self.password,
            password_file=files["password_file"],
            ca_file=files["ca_file"],
            cert_file=files["cert_file"],
            key_file=files["key_file"],
        )


class StateConfig(Part):
    """`memory`, or `{redis: {url: …}}`."""

    redis: RedisConfig | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_word(cls, value: object) -> object:
        if value == "memory":
            return {}
        if isinstance(value, StateConfig) or value == {} or (isinstance(value, dict) and list(value) == ["redis"]):
            return value
        raise custom_error("memory or {redis: {url: …}}")
