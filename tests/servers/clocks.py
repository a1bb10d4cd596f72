"""A wall clock for processes that can be set while they run, through a preloaded C library.

clock = make_clock(folder)
clock.set(-3600)                          # seconds; as often as you like
subprocess.Popen(..., env=os.environ | clock.environment)
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

# This library stands in for libfaketime, which hangs in programs that use jemalloc, such as Redis.
SOURCE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long nothing = 0, *seconds = &nothing;

__attribute__((constructor)) static void begin(void) {
    int file = open(getenv("CLOCK_FILE"), O_RDONLY);
    void *place = mmap(0, sizeof(long long), PROT_READ, MAP_SHARED, file, 0);
    if (place != MAP_FAILED) seconds = place;
    close(file);
}

int clock_gettime(clockid_t which, struct timespec *at) {
    int failed = syscall(SYS_clock_gettime, which, at);
    if (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE) at->tv_sec += *seconds;
    return failed;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    at->tv_sec = now.tv_sec;
    at->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""


class SetClock:
    """A clock for processes that start with its `environment`."""

    def __init__(self, library: Path, file: Path) -> None:
        self._file = file
        self.environment = {"LD_PRELOAD": str(library), "CLOCK_FILE": str(file)}

    def set(self, seconds: int) -> None:
        """Set how many seconds the clock is ahead of the true time."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("q", seconds))


def make_clock(folder: Path, seconds: int = 0) -> SetClock:
    """Return a clock whose files are in this folder."""
    library, file = folder / "clock.so", folder / f"clock{len(list(folder.glob('clock*')))}"
    if not library.exists():
        command = ["gcc", "-shared", "-fPIC", "-O1", "-x", "c", "-o", str(library), "-"]
        subprocess.run(command, input=SOURCE.encode(), check=True, capture_output=True, timeout=60)
    file.write_bytes(struct.pack("q", seconds))
    return SetClock(library, file)


def find_gcc() -> bool:
    """Whether the compiler is installed."""
    return shutil.which("gcc") is not None
