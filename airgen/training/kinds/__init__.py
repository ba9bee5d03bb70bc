"""The kinds of training, with one module per model family that contains its recipes and tasks."""
