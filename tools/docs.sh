#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the site of the documentation into build/site (or FOLDER): open build/site/index.html. What changed is built again, warnings
# are errors, and links between pages are checked, with the places that they name.
#   tools/docs.sh [FOLDER]
set -eu
cd "$(dirname "$0")/.."
python=build/deps/docs/bin/python
[ -x "$python" ] || { echo "docs: Sphinx is missing; run tools/setup.sh --docs" >&2 && exit 77; }
folder=${1:-build/site}
mkdir -p "$folder"
exec 8>"$folder/.lock" # one build of a folder at a time
flock 8
PYTHONDONTWRITEBYTECODE=1 "$python" -m sphinx --quiet --fail-on-warning --keep-going --jobs auto -c docs/site -d "$folder/.doctrees" . "$folder"
