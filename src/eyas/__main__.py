"""`python -m eyas` is `eyas`."""

import sys

from eyas.cli import main

if __name__ == "__main__":
    sys.exit(main())
