"""The report that people browse: one folder of static files, or one HTML file, about jobs, datasets and results."""
