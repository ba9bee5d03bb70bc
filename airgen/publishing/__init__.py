"""Share datasets: suites and their versions, private labels, the Hub, submissions and leaderboards."""


def dataset_key(task: str, domain: str, language: str, name: str) -> str:
    """Return the key of a dataset in suites, submissions and scores, which is also its folder in a suite.

    >>> dataset_key("qa", "science", "en", "weather-notes")
    'qa_science_en/weather-notes'
    """
    return f"{task}_{domain}_{language}/{name}"


def version_order(version: str) -> tuple[list[int], str]:
    """Return the sort key of a version, oldest first.

    >>> sorted(["26.11", "AIR-Bench_24.05", "26.9"], key=version_order)
    ['AIR-Bench_24.05', '26.9', '26.11']
    """
    return [int(part) for part in version.replace("_", ".").split(".") if part.isdigit()], version


A_DAY = 3
"""Default number of submissions per system that are scored in a day (UTC)."""
