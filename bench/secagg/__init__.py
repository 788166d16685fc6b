"""SecAgg's cost: whole rounds, beside Flower's."""
