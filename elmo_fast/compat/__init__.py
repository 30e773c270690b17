"""Names of older libraries, over the modules of this one."""
