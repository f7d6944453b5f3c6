"""Taking a process's own rights away, for good: memory, processor time, network, writing, other programs.

Everything here is called by the child process on itself, before it sees a model. A limit that the system does not
give is left out of the list that is returned: the report says what held.
"""

from __future__ import annotations

import ctypes
import platform
import re
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from fairkit.errors import ParameterError
from fairkit.support.lazy_dataclass import dataclass

_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_EPERM, _ENOSYS = 1, 38
_THREAD = 0x00010000
_WRITING = 0o3 | 0o100 | 0o1000 | 0o2000
"""O_WRONLY, O_RDWR, O_CREAT, O_TRUNC, O_APPEND."""

_NETWORK = "socket socketpair connect bind listen accept accept4 sendto sendmsg sendmmsg recvfrom recvmsg recvmmsg"
_PROGRAMS = "execve execveat fork vfork kill ptrace process_vm_readv process_vm_writev pidfd_open pidfd_getfd"
_SYSTEM = (
    "mount umount2 pivot_root chroot unshare setns bpf perf_event_open keyctl add_key request_key init_module "
    "finit_module delete_module kexec_load reboot swapon swapoff settimeofday clock_settime io_uring_setup "
    "userfaultfd open_by_handle_at ioperm iopl personality setuid setgid setresuid setresgid"
)
_FILES = (
    "creat rename renameat renameat2 unlink unlinkat rmdir mkdir mkdirat link linkat symlink symlinkat chmod fchmod "
    "fchmodat chown fchown lchown fchownat truncate mknod mknodat setxattr lsetxattr fsetxattr removexattr utimensat"
)

_X86_64 = {
    "open": 2, "socket": 41, "connect": 42, "accept": 43, "sendto": 44, "recvfrom": 45, "sendmsg": 46, "recvmsg": 47,
    "bind": 49, "listen": 50, "socketpair": 53, "clone": 56, "fork": 57, "vfork": 58, "execve": 59, "kill": 62,
    "truncate": 76, "rename": 82, "mkdir": 83, "rmdir": 84, "creat": 85, "link": 86, "unlink": 87, "symlink": 88,
    "chmod": 90, "fchmod": 91, "chown": 92, "fchown": 93, "lchown": 94, "ptrace": 101, "setuid": 105, "setgid": 106,
    "setresuid": 117, "setresgid": 119, "mknod": 133, "personality": 135, "pivot_root": 155, "chroot": 161,
    "settimeofday": 164, "mount": 165, "umount2": 166, "swapon": 167, "swapoff": 168, "reboot": 169, "iopl": 172,
    "ioperm": 173, "init_module": 175, "delete_module": 176, "setxattr": 188, "lsetxattr": 189, "fsetxattr": 190,
    "removexattr": 197, "clock_settime": 227, "kexec_load": 246, "add_key": 248, "request_key": 249, "keyctl": 250,
    "openat": 257, "mkdirat": 258, "mknodat": 259, "fchownat": 260, "unlinkat": 263, "renameat": 264, "linkat": 265,
    "symlinkat": 266, "fchmodat": 268, "unshare": 272, "utimensat": 280, "accept4": 288, "perf_event_open": 298,
    "recvmmsg": 299, "open_by_handle_at": 304, "sendmmsg": 307, "setns": 308, "process_vm_readv": 310,
    "process_vm_writev": 311, "finit_module": 313, "renameat2": 316, "bpf": 321, "execveat": 322, "userfaultfd": 323,
    "io_uring_setup": 425, "pidfd_open": 434, "clone3": 435, "openat2": 437, "pidfd_getfd": 438,
}  # fmt: skip
_AARCH64 = {
    "setxattr": 5, "lsetxattr": 6, "fsetxattr": 7, "removexattr": 14, "mknodat": 33, "mkdirat": 34, "unlinkat": 35,
    "symlinkat": 36, "linkat": 37, "renameat": 38, "umount2": 39, "mount": 40, "pivot_root": 41, "truncate": 45,
    "chroot": 51, "fchmod": 52, "fchmodat": 53, "fchownat": 54, "fchown": 55, "openat": 56, "utimensat": 88,
    "personality": 92, "unshare": 97, "kexec_load": 104, "init_module": 105, "delete_module": 106,
    "clock_settime": 112, "ptrace": 117, "kill": 129, "reboot": 142, "setgid": 144, "setuid": 146, "setresuid": 147,
    "setresgid": 149, "settimeofday": 170, "socket": 198, "socketpair": 199, "bind": 200, "listen": 201,
    "accept": 202, "connect": 203, "sendto": 206, "recvfrom": 207, "sendmsg": 211, "recvmsg": 212, "add_key": 217,
    "request_key": 218, "keyctl": 219, "clone": 220, "execve": 221, "swapon": 224, "swapoff": 225,
    "perf_event_open": 241, "accept4": 242, "recvmmsg": 243, "open_by_handle_at": 265, "setns": 268, "sendmmsg": 269,
    "process_vm_readv": 270, "process_vm_writev": 271, "finit_module": 273, "renameat2": 276, "bpf": 280,
    "execveat": 281, "userfaultfd": 282, "io_uring_setup": 425, "pidfd_open": 434, "clone3": 435, "openat2": 437,
    "pidfd_getfd": 438,
}  # fmt: skip
_MACHINES = {
    "x86_64": (0xC000003E, _X86_64, {"seccomp": 317, "prctl": 157}),
    "aarch64": (0xC00000B7, _AARCH64, {"seccomp": 277, "prctl": 167}),
}


def limit_memory(more: int) -> str | None:
    """Let the process have at most so many bytes of address space beyond what it has now; the sentence for reports."""
    try:
        import resource

        with open("/proc/self/statm") as file:  # noqa: PTH123 -- pathlib is not needed in the child
            now = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + more, now + more))
    except (ImportError, OSError, ValueError):
        return None
    return "a limit of memory"


def limit_dumps() -> None:
    """Leave no core files."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, OSError, ValueError):
        return


def limit_processor(seconds: float) -> str | None:
    """Let the process compute for so many seconds more; called before every piece of work."""
    try:
        import resource

        used = resource.getrusage(resource.RUSAGE_SELF)
        soft = int(used.ru_utime + used.ru_stime + seconds) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))
    except (ImportError, OSError, ValueError):
        return None
    return "a limit of processor time"


def forbid_calls() -> tuple[str, ...]:
    """Forbid sockets, other programs and writing to files, by a seccomp filter; give the sentences for reports."""
    machine = _MACHINES.get(platform.machine())
    if machine is None or not sys.platform.startswith("linux") or struct.calcsize("P") != 8:
        return ()
    code = _program(*machine[:2])
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(code, len(code))

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]

    program = Program(len(code) // 8, ctypes.cast(buffer, ctypes.c_void_p))
    if libc.prctl(38, 1, 0, 0, 0) != 0:  # PR_SET_NO_NEW_PRIVS
        return ()
    # SECCOMP_SET_MODE_FILTER with SECCOMP_FILTER_FLAG_TSYNC: threads that run already are bound too
    if libc.syscall(ctypes.c_long(machine[2]["seccomp"]), 1, 1, ctypes.byref(program)) != 0:
        return ()
    return ("no network", "no writing to files", "no other programs")


def _program(arch: int, numbers: dict[str, int]) -> bytes:
    """Assemble the filter of `man 2 seccomp`: the call's number is at 0, the architecture at 4, arguments at 16."""
    refused = [numbers[n] for n in f"{_NETWORK} {_PROGRAMS} {_SYSTEM} {_FILES}".split() if n in numbers]
    lines: list[tuple[int, int, int, int]] = [
        (0x20, 0, 0, 4),
        (0x15, 1, 0, arch),
        (0x06, 0, 0, _KILL),
        (0x20, 0, 0, 0),
        (0x35, 0, 1, 0x40000000),  # the x32 calls
        (0x06, 0, 0, _KILL),
    ]
    lines += [line for number in refused for line in ((0x15, 0, 1, number), (0x06, 0, 0, _REFUSE | _EPERM))]
    for name in ("clone3", "openat2"):  # the C library falls back to the calls whose arguments can be seen
        lines += [(0x15, 0, 1, numbers[name]), (0x06, 0, 0, _REFUSE | _ENOSYS)]
    for name, index in (("open", 1), ("openat", 2)):
        if name in numbers:
            lines += [
                (0x15, 0, 4, numbers[name]),
                (0x20, 0, 0, 16 + 8 * index),
                (0x45, 0, 1, _WRITING),
                (0x06, 0, 0, _REFUSE | _EPERM),
                (0x06, 0, 0, _ALLOW),
            ]
    lines += [
        (0x15, 0, 4, numbers["clone"]),
        (0x20, 0, 0, 16),
        (0x45, 1, 0, _THREAD),
        (0x06, 0, 0, _REFUSE | _EPERM),
        (0x06, 0, 0, _ALLOW),
        (0x06, 0, 0, _ALLOW),
    ]
    return b"".join(struct.pack("=HBBI", *line) for line in lines)


# How much a foreign model may take: memory, time, and the operators that it may be made of.


TIMEOUT = 300.0
"""Seconds that one batch may take."""
RESERVE = 0.1
"""The share of the machine's free memory that a model never gets."""
LEAST = 256 << 20
"""Bytes that a model gets where little is free."""
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a model's process may take."""

    memory: int | None = None
    timeout: float = TIMEOUT  # seconds that loading the model or scoring one batch may take
    domains: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.memory is not None and self.memory < 1 << 20:
            raise ParameterError(f"memory={self.memory} bytes is too little for any model; say 2GB, for example")
        if not 0 < self.timeout < float("inf"):
            raise ParameterError(f"timeout={self.timeout} is no number of seconds above 0")

    def bytes(self) -> int:
        """Return the bytes that a model gets on this machine."""
        return free_memory() if self.memory is None else self.memory


_current: ContextVar[Limits | None] = ContextVar("limits", default=None)


def current() -> Limits:
    """Return the limits that hold where nothing else is said."""
    return _current.get() or Limits()


@contextmanager
def using(limits: Limits) -> Iterator[None]:
    """Let models that are loaded inside have these limits."""
    before = _current.set(limits)
    try:
        yield
    finally:
        _current.reset(before)


def use(limits: Limits) -> None:
    """Let models that are loaded from here on have these limits: for a command, which ends with its process."""
    _current.set(limits)


def read_bytes(text: str) -> int:
    """Read a size such as ``2GB``, ``500M`` or ``1.5 GiB``; units are powers of 1,024."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", text, re.IGNORECASE)
    if match is None:
        raise ParameterError(f"{text!r} is no size of memory; say 2GB or 500MB, for example")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def shown_bytes(count: int) -> str:
    """Return a size for people."""
    return f"{count / (1 << 30):.3g} GB" if count >= 1 << 30 else f"{count / (1 << 20):.3g} MB"


def free_memory() -> int:
    """Return the bytes that this machine, or this container, has free, less a tenth; at least `LEAST`."""
    amounts = [*_available(), *_container()]
    return max(int(min(amounts) * (1 - RESERVE)), LEAST) if amounts else 4 << 30


def _available() -> Sequence[int]:
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        return [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    except (OSError, ValueError):
        return []


def _container() -> Sequence[int]:
    """Return the memory left in the control group, in bytes, where there is one."""
    try:
        root = Path("/sys/fs/cgroup")
        most, used = ((root / name).read_text("ascii").strip() for name in ("memory.max", "memory.current"))
        return [] if most == "max" else [max(int(most) - int(used), 0)]
    except (OSError, ValueError):
        return []
