"""Give datasets to others: suites and their versions, private labels, the Hub, submissions, leaderboards."""

__all__: list[str] = []
