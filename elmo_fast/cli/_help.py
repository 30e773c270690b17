"""The layout of a command's --help: a sentence for each option, its choices, and its default if there is one."""

import argparse

import jsonargparse


class HelpFormatter(jsonargparse.DefaultHelpFormatter):
    """jsonargparse's own without Python's types, and without defaults that say nothing (null, false, an empty list)."""

    def _get_help_string(self, action: argparse.Action) -> str:
        told = action.help or ""
        if not action.option_strings or isinstance(action, argparse._HelpAction):
            return told
        if action.required:
            return f"{told} (required)"
        silent = action.default in ("", []) or any(action.default is each for each in (None, False, argparse.SUPPRESS))
        return told if silent or "(default: " in told else f"{told} (default: %(default)s)"
