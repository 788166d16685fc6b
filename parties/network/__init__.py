"""Network layers below the protocols: frames, shared ports, ClientHello parser, routing by SNI."""
