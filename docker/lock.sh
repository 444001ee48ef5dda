#!/bin/sh
# Writes requirements.lock: what the image adds to its base, every file with its hash, for all
# Pythons and architectures. torch and numpy are the base's. Usage: sh docker/lock.sh PYTHON, one
# that has the project and uv installed; `make lock` does both.
set -eu
here=$(dirname -- "$0")
"$1" - <<'PYTHON' |
from importlib.metadata import requires

own = [need for need in requires("node-preflight") if "extra ==" not in need]
print(*(need for need in own if not need.startswith(("torch", "numpy"))), sep="\n")
print("dumb-init", "setuptools>=77", sep="\n")
PYTHON
  "$1" -m uv pip compile - --quiet --universal --python-version 3.10 --fork-strategy fewest \
    --upgrade --generate-hashes --no-annotate --custom-compile-command "make lock" \
    --output-file "$here/requirements.lock"
