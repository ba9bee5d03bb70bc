"""Re-rankers that read query and passage together."""

__all__: list[str] = []
