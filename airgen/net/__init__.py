"""All that leaves the machine: the one HTTP client, the `openai` package on top of it, downloads, and retries."""
