"""The command `mtl`: MR-MTL on one machine."""

from parties.commands.silos_trial import trial_command

mtl = trial_command(
    "mtl",
    example="syncret mtl examples/mtl/school.toml --data school.csv.gz --by school --out runs/school",
    text="""Split one table among silos and run MR-MTL on this machine: a server and the silos as processes.

Silos train models of their own, drawn to the mean of all, each with noise for its own epsilon. They meet over
mutual TLS, and the server sees sums of models alone. The same command on the folder of an interrupted run goes on
after its last sum. On hosts of their own: syncret silos-server and silos-client.
""",
)
