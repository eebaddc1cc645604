"""What a guest is made of: recipe, packages, kernel, first root directory, our code."""
