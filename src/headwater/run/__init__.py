"""WHO ACTS? The loops that turn decisions into acts, against ports."""
