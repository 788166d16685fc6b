"""The command `tda`: Fed-TDA on one machine."""

from parties.commands.silos_trial import trial_command

tda = trial_command(
    "tda",
    example="syncret tda examples/tda/stays.toml --data stays.csv --clients 5 --beta 0.05 --out runs/tda",
    text="""Split one table among silos and run Fed-TDA on this machine: a server and the silos as processes.

They meet over mutual TLS, and every sum is taken by secure aggregation: mixtures of the continuous columns,
frequencies, second moments; the server draws a synthetic table from what they say. The same command on the folder
of an interrupted run goes on after its last sum. On hosts of their own: syncret silos-server and silos-client.
""",
)
