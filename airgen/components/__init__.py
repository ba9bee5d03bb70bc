"""What names refer to, and what identifies it: the registry, users' code and functions, keys, and devices."""
