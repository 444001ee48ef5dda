#!/usr/bin/env python3
"""Starts preflight out of this folder, by the Python that runs this file and beside its torch.

The image's own packages stay as they are: the folder is put on the path of this process and of
those that it starts to measure. Standard library only; old Pythons must get as far as the message.
"""

import importlib
import os
import sys
import sysconfig

TREE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
SITE = os.path.join(TREE, "site")
PILLOW = os.path.join(TREE, "pillow")  # only where the image that this was made from had none
UNDECIDED = 3


def main():
    """Run the command; on a Python that it has no compiled part for, say so."""
    line = unsupported()
    if line:
        sys.stderr.write("preflight: %s\n" % line)  # noqa: UP031
        sys.exit(UNDECIDED)
    folders = [SITE]
    if has(PILLOW, "PIL", "_imaging") and importlib.util.find_spec("PIL") is None:
        folders.append(PILLOW)
    sys.path[:1] = folders  # in place of the folder of this file
    # For the processes that measure. A command that starts after a pass gets what we were given.
    own = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(folders + ([own] if own else []))
    importlib.import_module("preflight.__main__").main()


def unsupported():
    """Why this Python cannot run it; None where it can."""
    if has(SITE, "pydantic_core", "_pydantic_core"):
        importlib.import_module("importlib.util")
        return None
    files = os.listdir(os.path.join(SITE, "pydantic_core"))
    kinds = sorted(name.split(".")[1] for name in files if name.endswith(".so"))
    return (
        "nothing was measured: {} is Python {} ({}), and this copy of preflight runs under {}; "
        "start it by a Python of the image that it can use (PYTHON {}), or install preflight "
        "into the image"
    ).format(
        sys.executable, sys.version.split()[0], sysconfig.get_config_var("SOABI") or "no ABI",
        ", ".join(kinds), os.path.realpath(__file__),
    )  # fmt: skip


def has(folder, package, module):
    """Whether a compiled module is there for this Python."""
    suffix = sysconfig.get_config_var("EXT_SUFFIX") or ".none"
    return os.path.exists(os.path.join(folder, package, module + suffix))


if __name__ == "__main__":
    main()
