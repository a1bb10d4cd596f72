"""The entry point of the command `lycosa`, and of `python -m lycosa`.

The modules of the command are imported under a handler: Ctrl-C while they load ends it without a traceback.
"""

import sys


def main() -> int:
    """Run the command line of the program. Return the exit code."""
    try:
        from lycosa.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        sys.stderr.write("lycosa: interrupted\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
