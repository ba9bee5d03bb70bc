"""Studies of the quality of benchmarks, judges and models, for `airgen study`."""
