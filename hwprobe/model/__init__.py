"""Look at a Keras model: what in it does not survive 16 bits."""
