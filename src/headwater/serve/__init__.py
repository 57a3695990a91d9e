"""Who asks? The command line."""
