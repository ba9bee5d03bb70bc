"""The user's own queries in place of generated ones: their file, labels that exist already, and their lineages."""
