"""Give datasets to others: suites and their versions, private labels, the Hub, submissions, leaderboards."""


def dataset_key(task: str, domain: str, language: str, name: str) -> str:
    """The key of a dataset in suites, submissions and scores, which is also its folder in a suite.

    >>> dataset_key("qa", "science", "en", "weather-notes")
    'qa_science_en/weather-notes'
    """
    return f"{task}_{domain}_{language}/{name}"
