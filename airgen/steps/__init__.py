"""What generation and quality control are made of: a step, the rows of a lineage, asking a model, progress."""
