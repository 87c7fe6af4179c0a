"""`python -m cubepy.cli` is `cubepy`."""

from cubepy.cli.main import main

main()
