"""Cleaning steps, which drop or change documents. A step looks at one document, or also at earlier ones."""
