"""`python -m parties` is `syncret`."""

from parties.commands.main import main

main()
