"""Headwater runs one streaming pipeline across many sites of unequal strength."""

__version__ = "0.1.0"
