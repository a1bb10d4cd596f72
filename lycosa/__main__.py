"""The entry point of the command `lycosa` and of `python -m lycosa`."""

import sys


def main() -> int:
    """Run the command line of the program. Return the exit code."""
    try:
        # Imported here, so that Ctrl-C during the imports leaves no traceback.
        from lycosa.cli.main import main as run

        return run()
    except KeyboardInterrupt:
        sys.stderr.write("lycosa: interrupted\n")
        return 130


if __name__ == "__main__":
    sys.exit(main())
