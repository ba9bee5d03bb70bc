"""What is kept on disk: the work database and its rows, files written as a whole, and airgen's own folders."""
