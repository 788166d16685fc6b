"""Tables with keys: a table of persons, and tables with several rows of each, such as stays or payments.

``declared`` is their public description, ``views`` turns them into flat tables that every method can run on, each with
the number of a person's rows in it, ``drawing`` draws keyed tables from the views' models, ``drafting`` describes
tables that were read, and ``figures`` measures what only keyed tables have: spread within a person, change, order.
"""
