"""The protocols of the state that several gateway processes could share."""
