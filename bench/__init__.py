"""How good and how fast is it? Problems to measure on, and the benchmark of placement."""
