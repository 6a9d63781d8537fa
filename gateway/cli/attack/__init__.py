"""`attack`: whether a running gateway holds against the attacks that its makers know."""
