"""The browsable report on jobs, datasets and results, as a folder of static files or a single HTML file."""
