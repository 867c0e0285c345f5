"""What a person, a program or a stranger can get wrong, one row each, and the words that answer it."""
