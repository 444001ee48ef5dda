#!/bin/sh
# Fills a folder with preflight and all it needs beside torch, numpy and Pillow, which are the
# image's: bin/preflight runs from there under any Python that site/ has the compiled part for.
# Nothing outside the folder is changed. Usage: sh install.sh SOURCE FOLDER
set -eu
source=$1 tree=$2
pythons="3.10 3.11 3.12 3.13 3.14" # those that torch 2.13 has builds for

lock=$source/docker/requirements.lock
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

locked() { # the lines of these packages alone, or of all but these after a "-"
  awk -v names=" $* " '/^[a-z]/ { split($1, part, "=="); named = index(names, " " part[1] " ") }
    /^ *#/ { next } (names ~ /^ - /) != (named > 0)' "$lock"
}
install() { # into a folder; the rest goes to pip
  python3 -m pip install --quiet --no-cache-dir --disable-pip-version-check --no-compile \
    --no-deps --target "$@"
}

mkdir -p "$tree/bin"
locked setuptools > "$work/setuptools.lock"
locked - setuptools pillow > "$work/site.lock"
locked pydantic-core > "$work/compiled.lock"
locked pillow > "$work/pillow.lock"

install "$tree/site" --only-binary :all: --require-hashes -r "$work/site.lock"
mv "$tree/site/bin/dumb-init" "$tree/bin/"
own=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
for python in $pythons; do
  [ "$python" != "$own" ] || continue
  install "$work/$python" --only-binary :all: --python-version "$python" --require-hashes \
    -r "$work/compiled.lock"
  cp "$work/$python"/pydantic_core/*.so "$tree/site/pydantic_core/"
done
# A base without Pillow gets one; else the loader is measured with the base's.
if ! python3 -c 'import PIL' 2> "$work/error"; then
  install "$tree/pillow" --only-binary :all: --require-hashes -r "$work/pillow.lock"
  rm -f "$tree"/pillow/PIL/_avif.*.so "$tree"/pillow/pillow.libs/libavif-* # a third, never loaded
fi

install "$work/setuptools" --only-binary :all: --require-hashes -r "$work/setuptools.lock"
cp -r "$source" "$work/source" # setuptools writes beside what it builds
PYTHONPATH=$work/setuptools install "$tree/site" --no-build-isolation "$work/source"
rm -rf "$tree/site/bin" "$tree"/site/yaml/_yaml.*.so # files are read by the loader in Python
cp "$source/docker/launcher.py" "$tree/bin/preflight"
chmod 755 "$tree/bin/preflight"
# The folder is read-only later. Of Pygments nothing is loaded but by chance.
python3 -m compileall -q -x '/(pygments|tests)/' "$tree/site"
chmod -R a+rX "$tree"
