"""The command line: a file per group of commands, found by `main.COMMANDS`."""
