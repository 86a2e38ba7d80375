"""Look at a Keras model: what in it does not survive 16 bits, and how precision variants compare on it."""
