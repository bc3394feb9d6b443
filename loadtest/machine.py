"""What machine this is, and whether something else was busy on it while we measured (Linux)."""

import contextlib
import os
import pathlib
import platform
import re
import time


def describe():
    """One line: processor, cores, memory, kernel."""
    cpu = re.search(r"model name\s*: (.*)", _read("/proc/cpuinfo"))
    memory_kb = re.search(r"MemTotal:\s+(\d+)", _read("/proc/meminfo"))
    parts = [cpu.group(1).strip() if cpu else platform.machine(), f"{len(os.sched_getaffinity(0))} cores"]
    if memory_kb:
        parts.append(f"{int(memory_kb.group(1)) / 2**20:.0f} GiB")
    return ", ".join(parts)


def available_bytes():
    found = re.search(r"MemAvailable:\s+(\d+)", _read("/proc/meminfo"))
    return int(found.group(1)) * 1024 if found else None


def _status_bytes(pid, field):
    found = re.search(rf"{field}:\s+(\d+) kB", _read(f"/proc/{pid}/status"))
    return int(found.group(1)) * 1024 if found else None


def resident_bytes(pid):
    """None when the process has gone."""
    return _status_bytes(pid, "VmRSS")


def allocated_bytes(pid):
    """Of the resident memory, without pages of files (weights, libraries), which the system reads and drops as it likes; None when
    the process has gone."""
    return _status_bytes(pid, "RssAnon")


def tree(pid):
    """A process and its living descendants."""
    found = [pid]
    for task in pathlib.Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in task.read_text().split():
                found += tree(int(child))
    return found


def busy_s(pid):
    """CPU time of a process, its living descendants, and those that it has waited for."""
    return sum(_process_busy_s(each) for each in tree(pid))


class ForeignLoad:
    """How many cores, on average, were busy with anything but this process and those it started."""

    def __init__(self):
        self._began = time.monotonic()
        self._busy = _machine_busy_s()
        self._own = busy_s(os.getpid())

    def cores(self):
        foreign = (_machine_busy_s() - self._busy) - (busy_s(os.getpid()) - self._own)
        return max(0.0, foreign / (time.monotonic() - self._began))


def _machine_busy_s():
    user, nice, system, _, _, irq, softirq, *_ = (int(ticks) for ticks in _read("/proc/stat").split("\n")[0].split()[1:])
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def _process_busy_s(pid):
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK") if len(fields) > 12 else 0.0


def _read(path):
    try:
        return pathlib.Path(path).read_text()
    except OSError:
        return ""
