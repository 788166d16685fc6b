"""One server, many participants and secure sums over mutual TLS or Flower: sessions, members, journals."""
