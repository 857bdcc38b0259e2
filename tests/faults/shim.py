"""Faults on demand: the n-th call that changes a folder is killed, or fails as a bad disk does."""

import builtins
import errno
import io
import os
import signal
import sys

FAULTS = {"kill": None, "EIO": errno.EIO, "ENOSPC": errno.ENOSPC}
NOT_REACHED = 77
"""Exit status of a process that ended before the call at which it was to fail."""


class Injector:
    """Counts the calls below `root` that create, rename or remove, and fails the n-th."""

    def __init__(self, root, moment, fault):
        self.root, self.moment, self.fault = os.path.realpath(root), moment, fault
        self.count, self.reached = 0, None

    def concerns(self, path, options):
        if options.get("dir_fd") is not None or options.get("src_dir_fd") is not None:
            return True  # of shutil.rmtree, which walks by descriptors
        if isinstance(path, int):
            return False
        return os.path.abspath(os.fsdecode(path)).startswith(self.root)

    def strike(self, name, path):
        """Fail if this is the call."""
        self.count += 1
        if self.count - 1 != self.moment:
            return
        self.reached = f"{name} {os.path.basename(os.fsdecode(path))}"
        if self.fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        code = FAULTS[self.fault]
        raise OSError(code, os.strerror(code), str(path))

    def wrap(self, owner, name, writes=lambda *args, **options: True):
        original = getattr(owner, name)

        def call(path, *args, **options):
            if writes(*args, **options) and self.concerns(path, options):
                self.strike(name, path)
            return original(path, *args, **options)

        setattr(owner, name, call)

    def install(self):
        for name in ("rename", "replace", "unlink", "remove", "rmdir", "mkdir", "link", "chmod"):
            self.wrap(os, name)
        self.wrap(os, "open", lambda flags, *a, **o: flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
        for owner in (builtins, io):
            self.wrap(owner, "open", lambda mode="r", *a, **o: set(mode) & set("wax+"))


def run_forked(action, root, moment, fault):
    """Run `action` in a child that fails at `moment`.

    Returns the exit status (negative for a signal), or NOT_REACHED if the run ended before. With
    `moment` None nothing fails.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            injector = Injector(root, moment, fault)
            injector.install()
            try:
                status = action() or 0
            except SystemExit as end:
                status = end.code
            except BaseException as error:
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
            if moment is not None and injector.reached is None:
                status = NOT_REACHED
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
