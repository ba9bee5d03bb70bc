"""The kinds of training: one module for each model family, with its recipe and its task."""
