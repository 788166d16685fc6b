"""Functions of `import syncret`: the operations of the commands, for programs and notebooks."""
