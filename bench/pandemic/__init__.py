"""The pandemic task: who falls ill within a week, from who met whom, in silos that each know a region."""
