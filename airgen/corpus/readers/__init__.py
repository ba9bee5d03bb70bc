"""Readers, with one module per source format. `airgen.registry.REGISTRY["reader"]` lists them."""
