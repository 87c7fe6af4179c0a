"""`python -m cubepy` is `cubepy`."""

from cubepy.cli.main import main

main()
