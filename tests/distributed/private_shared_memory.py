# SPDX-License-Identifier: Apache-2.0
"""A /dev/shm that only a test and what it starts can see, so that what is left in it is theirs."""

import contextlib
import ctypes
import os
import sys

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
FOLDER = "/dev/shm"


def _call(function, *arguments):
    if getattr(ctypes.CDLL(None, use_errno=True), function)(*arguments) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{function}: {os.strerror(error)}")


def _enter():
    """This process gets mounts of its own; without root's rights in a namespace of users, where it may make them."""
    user, group = os.getuid(), os.getgid()
    try:
        _call("unshare", CLONE_NEWNS)
    except PermissionError:
        _call("unshare", CLONE_NEWUSER | CLONE_NEWNS)
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
                file.write(text)
    _call("mount", None, b"/", None, MS_REC | MS_PRIVATE, None)
    _call("mount", b"tmpfs", FOLDER.encode(), b"tmpfs", 0, b"mode=1777")


@contextlib.contextmanager
def nothing_left_in_shared_memory():
    """From here to the end of this process /dev/shm is empty and its own; if something is in it behind the body, the program fails. Where
    the system refuses that, nothing is looked at: files of other jobs could be there. To be called before threads are started."""
    try:
        _enter()
        is_own = True
    except OSError as error:
        print(f"what is left in {FOLDER} is not looked at: {error}", flush=True)
        is_own = False
    yield
    left = sorted(os.listdir(FOLDER)) if is_own else []
    if left:
        sys.exit(f"left in {FOLDER}: {left}")
