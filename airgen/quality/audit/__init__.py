"""The human audit: people check a sample of a dataset's labels."""
