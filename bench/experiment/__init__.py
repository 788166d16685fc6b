"""The kit of an experiment: settings, sweeps, records, circumstances and pages."""
