"""Share datasets: suites and their versions, private labels, the Hub, submissions and leaderboards."""

import re


def dataset_key(task: str, domain: str, language: str, name: str) -> str:
    """Return the key of a dataset in suites, submissions and scores, which is also its folder in a suite.

    >>> dataset_key("qa", "science", "en", "weather-notes")
    'qa_science_en/weather-notes'
    """
    return f"{task}_{domain}_{language}/{name}"


def version_order(version: str) -> tuple[list[tuple[int, str]], str]:
    """Return the sort key of a version, oldest first.

    >>> sorted(["26.11", "AIR-Bench_24.05", "26.9"], key=version_order)
    ['AIR-Bench_24.05', '26.9', '26.11']
    """
    parts = [part.lstrip("0") for part in re.split(r"[._]", version) if part.isascii() and part.isdigit()]
    return [(len(part), part) for part in parts], version  # a number may have any number of digits


A_DAY = 3
"""Default number of submissions per system that are scored in a day (UTC)."""
