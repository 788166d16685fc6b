"""`python -m parties` is `syncret`."""

from parties.cli.main import main

main()
