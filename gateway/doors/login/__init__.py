"""The login of people, at the console and at the sites of apps."""
