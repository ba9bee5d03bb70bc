"""What is left out of a corpus, and what is changed: a step looks at one document, or at those before it, too."""
