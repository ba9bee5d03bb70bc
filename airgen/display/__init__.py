"""How values are shown: tables and text as a `Study`, and the progress of long work in a notebook."""
