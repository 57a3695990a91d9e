"""On what? A network of unequal machines, made of one."""
