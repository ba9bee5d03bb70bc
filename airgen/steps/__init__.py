"""The building blocks of generation and quality control: steps, lineages of rows, asking a model, and progress."""
