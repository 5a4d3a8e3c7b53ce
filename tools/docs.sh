#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the site of the documentation into build/site (or FOLDER): open build/site/index.html. What changed is built again, warnings
# are errors, and links between pages are checked, with the places that they name. --repository is the address of the repository at GitHub, GitLab
# or Bitbucket: each page then has links to its source and to editing it.
#   tools/docs.sh [--repository URL] [FOLDER]
set -eu
cd "$(dirname "$0")/.."
python=build/deps/docs/bin/python
[ -x "$python" ] || { echo "docs: Sphinx is missing; run tools/setup.sh --docs" >&2 && exit 77; }
source=
if [ "${1:-}" = --repository ]; then
  source=${2:?"docs: --repository: expected an address after it"}
  shift 2
fi
folder=${1:-build/site}
mkdir -p "$folder"
exec 8>"$folder/.lock" # one build of a folder at a time
flock 8
PYTHONDONTWRITEBYTECODE=1 "$python" -m sphinx --quiet --fail-on-warning --keep-going --jobs auto -c docs/site -d "$folder/.doctrees" \
  ${source:+-D "html_theme_options.source_repository=$source"} . "$folder"
