"""Ctrl-C and SIGTERM end a command, whatever its main thread does."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from riskpath.cli import interruption

PROGRAM = """
import hashlib, importlib.util, signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background process ignores it
spec = importlib.util.spec_from_file_location("interruption", {file!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
try:
    with module.interruptible(), module.last_words(lambda: "saved"):
        print("ready", flush=True)
        {work}
except KeyboardInterrupt:
    print("heard", flush=True)
"""
"""Without the package, whose imports take seconds."""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("work", "status", "line"),
    [
        ("hashlib.pbkdf2_hmac('sha256', b'', b'', 2**31 - 1)", 130, "riskpath: saved\n"),  # hears no signal, as XLA
        ("time.sleep(60)", 0, ""),
        ("type('Slow', (), {'__del__': lambda self: time.sleep(1)})(); time.sleep(60)", 0, ""),  # drops exceptions
    ],
)
def test_a_signal_ends_a_program_that_does_not_hear_it(number, work, status, line):
    words = [sys.executable, "-c", PROGRAM.format(file=interruption.__file__, work=work)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.2)
        process.send_signal(number)
        try:
            assert process.wait(30) == status
        finally:
            process.kill()
        assert process.stderr.read() == line
        assert process.stdout.read() == ("" if status else "heard\n")


ENDING = """
import sys, types
for name in ("riskpath", "riskpath.cli", "riskpath.cli.main"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["riskpath.cli.main"].main = lambda: sys.exit({status})
sys.modules["riskpath"].late = type("Late", (), {{"__del__": lambda self: print("destroyed")}})()
import riskpath_command
print("kept")
riskpath_command.main()
"""


@pytest.mark.parametrize(("status", "out"), [(130, "kept\n"), (2, "kept\ndestroyed\n")])
def test_an_interrupted_command_leaves_out_destructors_which_crash_while_a_program_is_compiled(status, out):
    done = subprocess.run([sys.executable, "-c", ENDING.format(status=status)], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (status, out, "")


def test_outside_of_the_main_thread_signals_are_left_alone():
    before = signal.getsignal(signal.SIGTERM)
    with interruption.interruptible():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before
    assert Path(interruption.__file__).exists()
