"""Check the quality of a benchmark, generated or not. `inspect_dataset` produces the page."""
