#!/usr/bin/env bash
# Makes or refreshes a virtual environment from a lock file, with this project installed editable.
# Usage: scripts/venv.sh DIR LOCKFILE     (PYTHON=... picks the interpreter)
set -euo pipefail
cd "$(dirname "$0")/.."
dir=$1 lock=$2

recent() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }

find_python() {
  local name
  for name in ${PYTHON:-} python3 python3.13 python3.12 python3.11 python3.10; do
    if recent "$name"; then echo "$name"; return; fi
  done
  echo "scripts/venv.sh: no Python 3.10 or newer found; install one or set PYTHON=/its/path" >&2
  return 1
}

if [ ! -x "$dir/bin/python" ] || ! recent "$dir/bin/python"; then
  python=$(find_python)
  rm -rf "$dir"
  # Debian keeps ensurepip in a package of its own.
  "$python" -c 'import ensurepip' 2>/dev/null || scripts/apt-install.sh python3-venv
  "$python" -m venv "$dir"
fi

"$dir/bin/python" -m pip --disable-pip-version-check install --quiet --require-hashes -r "$lock"
# The lock file holds the build's own requirements, so nothing is fetched here.
"$dir/bin/python" -m pip --disable-pip-version-check install --quiet --no-deps --no-build-isolation -e .

# JupyterLab finds the extension here once `make labext` has built it.
mkdir -p "$dir/share/jupyter/labextensions"
ln -sfn "$PWD/server_ext/allotment/labextension" "$dir/share/jupyter/labextensions/jupyter-allotment"
touch "$dir/.stamp"
