"""The names of older libraries, for the modules of this one."""
