"""The functions of `import syncret`: the commands' work, for programs and notebooks."""
