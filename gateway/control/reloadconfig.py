"""The configuration of hot reload."""

from gateway.control.part import Part


class ReloadConfig(Part):
    """When the configuration is read again, beside SIGHUP and `POST /api/v1/reload`.

    watch: whenever one of its files changes.
    """

    watch: bool = False
