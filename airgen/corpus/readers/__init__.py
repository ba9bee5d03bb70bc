"""Readers, with one module per source format. `airgen.components.registry.REGISTRY["reader"]` lists them."""
