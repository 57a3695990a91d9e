"""With what? The ties to the machine."""
