"""How prebuilt functions are called: arrays of all libraries, signatures, frozen launches."""
