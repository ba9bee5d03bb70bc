"""Is the benchmark any good? What `airgen study` does."""
