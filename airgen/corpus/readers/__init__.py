"""Readers, one module for each source format; `airgen.registry.REGISTRY["reader"]` lists them."""
