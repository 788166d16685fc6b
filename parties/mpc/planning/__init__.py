"""Planning of a DistAIM run from its configuration: validation, budget, resources, sizes of uploads."""
