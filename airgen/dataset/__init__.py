"""The dataset format: read, write, verify, describe and derive datasets."""
