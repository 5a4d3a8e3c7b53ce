# SPDX-License-Identifier: Apache-2.0
"""The parts that the configuration's parsers share."""

import argparse

from ...generated.enums import DynamoBackend

DYNAMO_BACKENDS = [backend for backend in DynamoBackend.list() if backend != "NO"]


class SubcommandHelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Without the usage and the list of commands above."""

    def _format_usage(self, usage, actions, groups, prefix):
        return ""

    def _format_action(self, action):
        text = super()._format_action(action)
        return "\n".join(text.split("\n")[1:]) if action.nargs == argparse.PARSER else text
