"""What clients and servers send, by the paper's formula and on the wire: its Tables 3 and 7, and how they grow."""
