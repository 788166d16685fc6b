"""Methods of a trial on a benchmark table, in one process or as deployed: settings, problems, runs."""
