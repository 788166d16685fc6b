"""Traffic of clients and servers, by the paper's formula and on the wire: its Tables 3 and 7, and the growth."""
