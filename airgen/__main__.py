"""`python -m airgen`."""

from airgen.cli import main

main()
