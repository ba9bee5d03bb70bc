"""Compare chunkers with the same retrievers on the same labels."""
