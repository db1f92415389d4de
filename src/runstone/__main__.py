"""`python -m runstone`."""

import sys

from runstone.cli import main

if __name__ == "__main__":
    sys.exit(main())
