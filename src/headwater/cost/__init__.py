"""How good is it? Rates along the pipeline, and what a placement costs."""
