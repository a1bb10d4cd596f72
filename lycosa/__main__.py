"""The entry point of `lycosa` and `python -m lycosa`."""

import sys


def main() -> int:
    """Run the command line of this process. Return the exit code."""
    try:
        # Imported here, so that Ctrl-C during the imports prints no traceback and is not lost.
        from lycosa.cli.interrupts import repeat_lost_interrupts

        with repeat_lost_interrupts():
            from lycosa.cli.main import main as run

            return run()
    except KeyboardInterrupt:
        sys.stderr.write("lycosa: interrupted\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
