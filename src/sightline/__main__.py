"""`python -m sightline` is the command line."""

import sys

from sightline.cli import main

sys.exit(main())
