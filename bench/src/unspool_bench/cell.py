"""A cell: namespaces, limits and another identity for a process, then the judge inside.

Run as a script by the sandbox, alone, with an empty environment: `cell.py VERDICT_PIPE`; the plan, the program and the
tests come in on its standard input. What the kernel does not grant is left out, and what stands is told.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import signal
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
ROOM_OF_ITS_OWN = NEWNS | NEWUTS | NEWIPC | NEWPID | NEWNET
RDONLY, NOSUID, NODEV, REMOUNT, BIND, MOVE, REC, PRIVATE = 1, 2, 4, 32, 4096, 8192, 16384, 1 << 18
DEATH_SIGNAL, NO_NEW_PRIVILEGES, DROP_BOUNDING, SUBREAPER = 1, 38, 24, 36
HOME = "/home"
DEVICES = ("null", "zero", "urandom")

libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *given: Any) -> None:
    if getattr(libc, name)(*given) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str = "") -> None:
    text = [None if part is None else part.encode() for part in (source, target, kind)]
    _call("mount", *text, ctypes.c_ulong(flags), options.encode())


def apart(wanted: bool) -> bool:
    """Leave the namespaces of the machine, as root or as the master of a new user namespace; whether it was granted."""
    if not wanted:
        return False
    user, group = os.getuid(), os.getgid()
    if os.geteuid() == 0:
        try:
            _call("unshare", ROOM_OF_ITS_OWN)
            return True
        except OSError:
            pass
    try:
        _call("unshare", ROOM_OF_ITS_OWN | NEWUSER)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    except OSError:
        return False
    return True


def furnish(folder: str, files: int) -> None:
    """A file system of its own: the interpreter and the system's libraries, not to be written, and an empty home.

    Its root is a folder of what is mounted, for the kernel lets nobody make a user namespace from such a place: there
    a program would be its own master, and could mount as much memory as it likes.
    """
    for kind in ("shmmni", "msgmni"):  # memory that outlives who took it; some kernels do not let us, and have a bound
        with suppress(OSError):
            Path(f"/proc/sys/kernel/{kind}").write_text("0")
    _mount("none", "/", None, REC | PRIVATE)
    _mount("cell", folder, "tmpfs", NOSUID | NODEV, f"size={files},nr_inodes=4096,mode=755")
    root = f"{folder}/cell"
    os.mkdir(root, 0o755)
    for path in ("/usr", "/lib", "/lib64", "/lib32", "/bin", *_interpreter()):
        _show(path, root)
    os.mkdir(f"{root}/dev")
    for name in DEVICES:
        Path(f"{root}/dev/{name}").touch()
        _mount(f"/dev/{name}", f"{root}/dev/{name}", None, BIND)
    os.mkdir(root + HOME, 0o700)
    os.chdir(folder)
    _mount(".", "/", None, MOVE)
    os.chroot(".")
    os.chroot("/cell")
    os.chdir(HOME)


def _interpreter() -> list[str]:
    """Where the standard library and the interpreter are, unless the system's own folders hold them."""
    found = {os.path.realpath(path) for path in (sys.base_prefix, sys.base_exec_prefix, os.path.dirname(os.__file__))}
    outside = [path for path in sorted(found) if not path.startswith(("/usr/", "/lib"))]
    return [
        path for path in outside if path not in ("/", "/usr") and not any(path.startswith(p + "/") for p in outside)
    ]


def _show(path: str, root: str) -> None:
    inside = root + path
    if os.path.islink(path):
        os.symlink(os.readlink(path), inside)
    elif os.path.isdir(path):
        os.makedirs(inside)
        _mount(path, inside, None, BIND | REC)
        have = os.statvfs(path).f_flag & 0xC0F  # flags that the machine has set may not be taken away
        _mount(None, inside, None, BIND | REMOUNT | RDONLY | NOSUID | NODEV | have)


def become(user: int, apart_from_files: bool) -> bool:
    """Another user, if we are root and the interpreter can still be read; without any power in either case."""
    _call("prctl", NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    changed = os.getuid() == 0 and (apart_from_files or _open_to_all(os.path.dirname(os.__file__)))
    for power in range(64):
        libc.prctl(DROP_BOUNDING, power, 0, 0, 0)
    if changed:
        os.chown(".", user, user)
        try:
            os.setgroups([])
            os.setresgid(user, user, user)
            os.setresuid(user, user, user)
        except OSError:
            changed = False
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    libc.capset(header, (ctypes.c_uint32 * 6)())
    return changed


def _open_to_all(path: str) -> bool:
    return all(os.stat(parent).st_mode & stat.S_IXOTH for parent in (Path(path), *Path(path).parents))


def limit(plan: dict[str, Any]) -> None:
    """What one process may use, and how many there may be."""
    import resource  # here: Windows has none, and this module is imported there too

    limits = {
        "AS": plan["memory"],
        "CPU": plan["seconds"] + 1,
        "NPROC": plan["processes"],
        "FSIZE": plan["file"],
        "NOFILE": plan["open"],
        "CORE": 0,
        "MSGQUEUE": 0,
    }
    for name, most in limits.items():
        number = getattr(resource, f"RLIMIT_{name}", None)
        if number is None:
            continue
        _, hard = resource.getrlimit(number)
        allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
        # the second of grace turns the signal of a spent limit into one that cannot be caught
        resource.setrlimit(number, (allowed, allowed + (name == "CPU" and hard == resource.RLIM_INFINITY)))


def confine(plan: dict[str, Any]) -> None:
    """Build the walls, in a child that is the first process of its namespace, and hold the trial there."""
    verdict = int(sys.argv[1])
    spec = importlib.util.spec_from_file_location("judge", Path(__file__).with_name("program_judge.py"))
    assert spec is not None
    assert spec.loader is not None
    judge = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(judge)
    libc.prctl(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    libc.prctl(SUBREAPER, 1, 0, 0, 0)
    alone = apart(plan["apart"])
    child = os.fork()
    if child:
        os.close(verdict)
        os.close(0)
        _, status = os.waitpid(child, 0)
        if not alone:
            signal.pause()  # what the program has left behind is ours, until the sandbox ends it all
        os._exit(1 if status else 0)
    walls = ["network", "processes"] if alone else []
    try:
        if alone:
            furnish(plan["root"], plan["files"])
            walls.append("files")
        else:
            os.chdir(plan["root"])
    except OSError as error:
        print(f"no file system of its own: {error}", file=sys.stderr)
        os.chdir(plan["root"])
    if become(plan["user"], "files" in walls):
        walls.append("identity")
    libc.prctl(DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    os.environ.update(HOME=os.getcwd())
    limit(plan)
    sys.path[:] = [path for path in sys.path if path and "site-packages" not in path]
    os.write(verdict, json.dumps({"walls": walls}).encode() + b"\n")
    missing = [wall for wall in plan["walls"] if wall not in walls]
    if missing:
        os.write(verdict, json.dumps({"outcome": "refused", "why": ", ".join(missing)}).encode())
        os._exit(1)
    judge.try_case(verdict, walls)
    os._exit(0)


if __name__ == "__main__":
    head = bytearray()
    while not head.endswith(b"\n"):  # byte by byte: what follows is for the judge to read
        head += os.read(0, 1)
    confine(json.loads(head))
