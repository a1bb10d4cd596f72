from __future__ import annotations

import subprocess
import sys

from tests.conftest import ROOT

LOSES_AN_INTERRUPT = """
import os, signal, sys, time, weakref
from lycosa import __main__
from lycosa.cli import main

class Object:
    pass

def interrupt(_):
    os.kill(os.getpid(), signal.SIGINT)
    while True:  # until the exception, which Python ignores here
        pass

def run(arguments):
    reference = weakref.ref(Object(), interrupt)
    time.sleep(600)

main._run = run
sys.exit(__main__.main())
"""


def test_an_interrupt_that_python_ignores_is_repeated():
    done = subprocess.run(
        [sys.executable, "-c", LOSES_AN_INTERRUPT], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (130, "lycosa: interrupted\n")
