# SPDX-License-Identifier: Apache-2.0
"""Where libaccel.so is: what $LIBACCEL names, else the one of the wheel, else what the extension was linked with."""

import os
import pathlib

PACKAGE = pathlib.Path(__file__).parents[1]
NAMES = ("libaccel.so.0.1", "libaccel.so")
# Of `pip install .`, with the plugins inside of the package; a wheel of a release is an installation of its own inside of the package.
BUILT_BY_PIP = PACKAGE.parent / ".libaccel.mesonpy.libs"
PLUGINS_BUILT_BY_PIP = PACKAGE / "plugins"


def in_place(place):
    """The file in an unpacked archive or an installation, in the folder of the library, or the file itself; None when it is not there."""
    place = pathlib.Path(place)
    if place.is_file():
        return place
    files = (place / folder / name for folder in ("lib", "lib64", f"lib/{os.uname().machine}-linux-gnu", "", "accel/lib") for name in NAMES)
    return next((file for file in files if file.is_file()), None)


def find():
    """The file, or None for what the extension was linked with."""
    named = os.environ.get("LIBACCEL")
    if named:
        file = in_place(named)
        if file is None:
            raise ImportError(f"LIBACCEL={named}: expected an unpacked archive or an installation of libaccel, the folder of the library, "
                              f"or the file {NAMES[-1]}")
        return file
    return in_place(PACKAGE) or next(BUILT_BY_PIP.glob("libaccel.so*"), None)
