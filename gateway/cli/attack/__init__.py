"""`attack`: whether a gateway withstands the attacks that its makers know."""
