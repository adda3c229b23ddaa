"""Small models that fill holes, trained from nothing on a file of lines."""
