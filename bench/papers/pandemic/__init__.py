"""The pandemic task: predicted infections within a week, from contacts, in silos that each know a region."""
