"""What a program uses: load a model, say what is wanted, read what is written."""
