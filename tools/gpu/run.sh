#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs all checks and speeds of a bundle on this machine: run.sh BUNDLE OUT [SECONDS], see README.md in this folder.
# $PYTHON is the Python that has torch (python3); $DEVICE what is tried: cuda, or cpu and sim for a rehearsal.
exec "${PYTHON:-python3}" "$(dirname "$0")/run.py" "$@"
