"""Is a benchmark, generated or not, any good? `airgen.report.inspection` shows what is measured here."""
