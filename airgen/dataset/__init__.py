"""The format of datasets: write, verify, describe, derive and read them."""
