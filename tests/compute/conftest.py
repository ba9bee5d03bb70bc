"""What runs on workers is compared with the encoder as it is."""

from encode_once import encoder_as_it_is

__all__ = ["encoder_as_it_is"]
