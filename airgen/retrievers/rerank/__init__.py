"""Re-rankers that read query and passage together."""
