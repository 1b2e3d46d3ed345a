"""`python -m headwise` is the command line."""

import sys

from headwise.cli import main

sys.exit(main())
