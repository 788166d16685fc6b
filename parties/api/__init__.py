"""What `import syncret` gives: the commands' work as functions, for programs and notebooks."""
