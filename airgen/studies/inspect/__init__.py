"""Is a benchmark, generated or not, any good? `inspect_dataset` makes the page."""
